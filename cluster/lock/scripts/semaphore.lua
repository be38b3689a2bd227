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
