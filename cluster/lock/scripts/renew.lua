-- Makes leases last for another TTL. ARGV: ttl, token... Returns 1 for each that was renewed and 0 for each that is gone.
local ttl = tonumber(ARGV[1])
-- A Redis that is full lets a script go on that has begun to write, and what is renewed takes no more room than it did.
redis.call('ZREM', dead, '')
local renewed = {}
for i = 2, #ARGV do
	local token = ARGV[i]
	renewed[i - 1] = 0
	if lease(token) then
		local fact = redis.call('HGET', facts, token) or '0'
		redis.call('ZADD', holders, text(now + ttl), token)
		local kept = string.match(fact, '^%d+') .. ' ' .. text(ttl)
		if kept ~= fact then redis.call('HSET', facts, token, kept) end
		renewed[i - 1] = 1
	end
end
keep(holders, ttl)
keep(facts, ttl)
return renewed
