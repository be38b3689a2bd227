-- What the scripts of a semaphore have in common. Times are microseconds.
-- KEYS: 1 holders: token -> end of lease. 2 facts: token -> "fence ttl". 3 queue: token -> place. 4 queue: token -> end of
-- patience. 5 the last number given out. 6 tokens that were given up before they were seen: token -> end.
local holders, facts, queue, patience, numbers, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local function text(n) return string.format('%.0f', n) end

-- keep makes a key live for some time more, and never shortens its life.
local function keep(key, span)
	local ms = math.ceil(span / 1000) + 1000
	if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, text(ms)) end
end

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

-- lease returns when the lease of a token ends, if it has one.
local function lease(token)
	local ends = tonumber(redis.call('ZSCORE', holders, token) or '0')
	if ends > now then return ends end
end

-- number returns a number greater than all before. As it follows the clock, it grows even over a loss of all keys.
local function number()
	local n = math.max(now, tonumber(redis.call('GET', numbers) or '0') + 1)
	redis.call('SET', numbers, text(n), 'PX', 86400000)
	return n
end

local function hold(token, fence, ttl)
	redis.call('ZADD', holders, text(now + ttl), token)
	redis.call('HSET', facts, token, text(fence) .. ' ' .. text(ttl))
	keep(holders, ttl)
	keep(facts, ttl)
end

-- wake tells those at the head of the queue for whom there is room. The first 22 bytes of a token name its node.
local function wake(limit)
	local free = math.min(limit - held(), 64)
	if free < 1 then return end
	for _, token in ipairs(redis.call('ZRANGE', queue, 0, free - 1)) do
		redis.call('PUBLISH', 'spillway:wake:' .. string.sub(token, 1, 22), token)
	end
end
