-- A log holds an entry for each call that took tokens: when, and how many were taken up to and with it since the log began.
-- So what was taken in a window is one difference, and no call looks at more than a few entries. The entry 'given', if there
-- is one, tells in its negative score how many of the oldest tokens do not count any more, because some were given back.
local function log_cum(member)
  return (struct.unpack('>I8', member))
end

local function log_look(key, o, s)
  s.limit, s.length = tonumber(ARGV[o]), tonumber(ARGV[o + 1])
  s.total, s.gone, s.at = 0, 0, now
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[1] and last[1] ~= 'given' then
    s.total, s.last = log_cum(last[1]), tonumber(last[2])
    s.at = math.max(now, s.last)
    local old = redis.call('ZREVRANGEBYSCORE', key, s.at - s.length, 0, 'LIMIT', 0, 1)
    if old[1] then
      s.gone = log_cum(old[1])
    end
    s.given = redis.call('ZSCORE', key, 'given')
    if s.given then
      s.gone = math.max(s.gone, -tonumber(s.given))
    end
    if s.at - now > s.length / 64 then
      -- The clock was set back: all of it counts as taken now.
      s.heal, s.at, s.last = true, now, now
    end
  end
  s.room = math.max(s.limit - s.total + s.gone, 0)
end

local function log_keep(key, s, n)
  if s.heal then
    s.heal, s.given = nil, nil
    redis.call('UNLINK', key)
    s.total, s.gone = s.total - s.gone, 0
    if s.total > 0 then
      redis.call('ZADD', key, s.at, struct.pack('>I8', s.total))
    end
  end
  if n > 0 then
    s.total, s.last = s.total + n, s.at
    redis.call('ZADD', key, s.at, struct.pack('>I8', s.total))
    -- Of what has expired one entry is needed. Some of the others go, so that none pile up and no call takes long.
    local old = redis.call('ZCOUNT', key, 0, s.at - s.length)
    if old > 1 then
      local first = s.given and 1 or 0
      redis.call('ZREMRANGEBYRANK', key, first, first + math.min(old - 2, 63))
    end
  end
  redis.call('PEXPIRE', key, math.ceil((s.at - now + s.length) / 1000) + 1)
  s.room = math.max(s.limit - s.total + s.gone, 0)
end

local function log_back(key, s, n, stamp)
  if s.last and stamp > s.at - s.length then
    if s.heal then
      log_keep(key, s, 0)
    end
    s.gone = math.min(s.gone + n, s.total)
    redis.call('ZADD', key, -s.gone, 'given')
    redis.call('PEXPIRE', key, math.ceil((s.at - now + s.length) / 1000) + 1)
  end
end

-- log_until returns how long it takes until n of the tokens that count do not any more.
local function log_until(key, s, n)
  local want = s.gone + n
  local lo, hi = 0, redis.call('ZCARD', key) - 1
  local e = redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', s.at - s.length), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if e[1] and log_cum(e[1]) >= want then
    return tonumber(e[2]) + s.length - now
  end
  if s.given then
    lo = 1
  end
  while lo < hi do -- the first entry that reaches want is in lo..hi
    local mid = math.floor((lo + hi) / 2)
    e = redis.call('ZRANGE', key, mid, mid)
    if log_cum(e[1]) >= want then
      hi = mid
    else
      lo = mid + 1
    end
  end
  e = redis.call('ZRANGE', key, lo, lo, 'WITHSCORES')
  return tonumber(e[2]) + s.length - now
end

local function log_tell(key, s, n)
  local used = s.total - s.gone
  if used == 0 then
    return 0, 0, 0
  end
  if s.heal then
    return s.length, s.length, s.length
  end
  local wait = 0
  if n > s.room then
    wait = log_until(key, s, used + n - s.limit)
  end
  return log_until(key, s, used - s.limit + s.room + 1), s.last + s.length - now, wait
end
