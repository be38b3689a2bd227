-- Takes a permit, or a place in the queue. ARGV: token, limit, ttl, patience (0: do not wait), longest queue, patience with one
-- that was woken.
-- Returns {1, fence, held} | {0, time until a lease ends or 0, held, place in the queue from 1} | {-1, 0, held}: refused, full
-- | {-2, 0, held}: the token was given up.
local token, limit, ttl, wait, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local brief = tonumber(ARGV[6])

if redis.call('ZSCORE', dead, token) then
	return {-2, 0, held()}
end
if lease(token) then -- the answer to an earlier call was lost
	local fence = tonumber(string.match(redis.call('HGET', facts, token) or '', '^%d+'))
	if not fence then fence = number() end -- the key of the facts was evicted
	hold(token, fence, ttl)
	return {1, fence, held()}
end

-- There may be room for all ahead of this one and for this one too.
local place = redis.call('ZRANK', queue, token) or redis.call('ZCARD', queue)
local taken = held()
if place < limit - taken then
	redis.call('ZREM', queue, token)
	redis.call('ZREM', patience, token)
	local fence = number()
	hold(token, fence, ttl)
	if limit - taken > 1 and redis.call('ZCARD', queue) > 0 then -- a lease has ended, of which nobody told the others
		wake(limit, brief)
	end
	return {1, fence, taken + 1}
end
if wait == 0 then
	return {-1, 0, taken}
end
if not redis.call('ZSCORE', queue, token) then
	if place >= room then
		return {-1, 0, taken}
	end
	redis.call('ZADD', queue, text(number()), token)
end
redis.call('ZADD', patience, text(now + wait), token)
keep(queue, wait)
keep(patience, wait)
if taken < limit then -- there is room for those ahead, who may not have heard of it
	wake(limit, brief)
end
local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
local left = first[2] and tonumber(first[2]) - now or 0
return {0, math.max(left, 0), taken, place + 1}
