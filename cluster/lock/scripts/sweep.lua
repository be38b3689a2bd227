-- What scripts do first that decide who is next.
-- A server clock that stepped back, or that of a replica, would have leases last for hours: none lasts longer than its TTL,
-- and no patience longer than a minute.
local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')
local function span(token) return tonumber(string.match(redis.call('HGET', facts, token) or '', ' (%d+)') or '3600000000') end
if last[1] and tonumber(last[2]) > now + span(last[1]) then
	for _, token in ipairs(redis.call('ZREVRANGE', holders, 0, 99)) do
		local ends = now + span(token)
		if tonumber(redis.call('ZSCORE', holders, token)) > ends then redis.call('ZADD', holders, text(ends), token) end
	end
end
for _, token in ipairs(redis.call('ZRANGEBYSCORE', patience, text(now + 60000001), '+inf', 'LIMIT', 0, 100)) do
	redis.call('ZADD', patience, text(now + 60000000), token)
end

-- What has ended goes, 100 at a time, so that no call takes long.
for _, token in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', text(now), 'LIMIT', 0, 100)) do
	redis.call('ZREM', holders, token)
	redis.call('HDEL', facts, token)
end
for _, token in ipairs(redis.call('ZRANGEBYSCORE', patience, '-inf', text(now), 'LIMIT', 0, 100)) do
	redis.call('ZREM', queue, token)
	redis.call('ZREM', patience, token)
end
for _, token in ipairs(redis.call('ZRANGEBYSCORE', dead, '-inf', text(now), 'LIMIT', 0, 100)) do
	redis.call('ZREM', dead, token)
end

local function held() return redis.call('ZCOUNT', holders, '(' .. text(now), '+inf') end

-- wake tells those at the head of the queue for whom there is room. One that does not answer within brief loses its place. The
-- first 22 bytes of a token name its node. A user who may not publish has those who wait poll.
local function wake(limit, brief)
	local free = math.min(limit - held(), 64)
	if free < 1 then return end
	for _, token in ipairs(redis.call('ZRANGE', queue, 0, free - 1)) do
		if tonumber(redis.call('ZSCORE', patience, token) or '0') > now + brief then
			redis.call('ZADD', patience, text(now + brief), token)
		end
		redis.pcall('PUBLISH', channel .. string.sub(token, 1, 22), token)
	end
end
