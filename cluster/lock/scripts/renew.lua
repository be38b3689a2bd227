-- Makes leases last for another TTL. ARGV: ttl, 1 if a token without a lease gets one, whatever the limit, token...
-- Returns 1 for each that has a lease now and 0 for each that is gone.
local ttl, anew = tonumber(ARGV[1]), ARGV[2] == '1'
-- A Redis that is full lets a script go on that has begun to write, and what is renewed takes no more room than it did.
redis.call('ZREM', dead, '')
local renewed = {}
for i = 3, #ARGV do
	local token = ARGV[i]
	renewed[i - 2] = 0
	if lease(token) then
		local fact = redis.call('HGET', facts, token) or '0'
		redis.call('ZADD', holders, text(now + ttl), token)
		local kept = string.match(fact, '^%d+') .. ' ' .. text(ttl)
		if kept ~= fact then redis.call('HSET', facts, token, kept) end
		renewed[i - 2] = 1
	elseif anew and tonumber(redis.call('ZSCORE', dead, token) or '0') <= now then
		hold(token, number(), ttl)
		renewed[i - 2] = 1
	end
end
keep(holders, ttl)
keep(facts, ttl)
return renewed
