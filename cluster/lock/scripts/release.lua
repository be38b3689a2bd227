-- Gives back permits and places in the queue. ARGV: limit, time for which a token that is not there must not appear any
-- more, patience with one that was woken, token... Returns how many held a permit.
local limit, grave, brief = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local released = 0
for i = 4, #ARGV do
	local token = ARGV[i]
	local had = redis.call('ZREM', holders, token)
	redis.call('HDEL', facts, token)
	redis.call('ZREM', queue, token)
	redis.call('ZREM', patience, token)
	released = released + had
	-- Whatever is still on its way for the token comes too late.
	if grave > 0 then
		redis.call('ZADD', dead, text(now + grave), token)
		keep(dead, grave)
	end
end
wake(limit, brief)
return {released}
