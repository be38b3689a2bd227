-- Makes leases last for another TTL. ARGV: ttl, token... Returns 1 for each that was renewed and 0 for each that is gone.
local ttl = tonumber(ARGV[1])
local renewed = {}
for i = 2, #ARGV do
	local token = ARGV[i]
	if lease(token) then
		local fence = tonumber(string.match(redis.call('HGET', facts, token) or '', '^%d+') or '0')
		hold(token, fence, ttl)
		renewed[i - 1] = 1
	else
		renewed[i - 1] = 0
	end
end
return renewed
