-- A bucket holds a level at some time: per ticks are one token, drain of them leave each µs, full of them fit. This is GCRA in
-- integers below 2^53, so nothing is rounded. The level may be at a time to come if the clock was set back; then it counts
-- for as much more, but never for more than a full bucket, so that nobody waits for the clock to come round again. Otherwise there
-- may be more in it than fits, if somebody goes by a greater burst: it stays, or each call of one would mint tokens for the other.
local function bucket_room(s)
  s.room = math.max(math.floor((s.full - s.level) / s.per), 0)
end

local function bucket_look(key, o, s)
  s.per, s.drain, s.full = tonumber(ARGV[o]), tonumber(ARGV[o + 1]), tonumber(ARGV[o + 2])
  s.level = 0
  local v = redis.call('GET', key)
  if v then
    if #v ~= 24 then
      return error(wrong(key))
    end
    local level, at, per = struct.unpack('<ddd', v)
    if per ~= s.per then -- the rate has changed: as many tokens stay taken
      level = math.ceil(level / per * s.per)
    end
    level = level - (now - at) * s.drain
    if now < at and level > s.full then
      level, s.heal = s.full, true
    end
    s.level = math.max(level, 0)
  end
  bucket_room(s)
end

local function bucket_put(key, s, level)
  s.level = math.max(level, 0)
  if s.level == 0 then
    redis.call('DEL', key)
  else
    put(key, struct.pack('<ddd', s.level, now, s.per), math.ceil(s.level / s.drain / 1000) + 1)
  end
  bucket_room(s)
end

-- bucket_back takes off as much as the level is higher, at least, than it would be if n fewer had been taken: time has drained the
-- others of that call first.
local function bucket_back(key, o, s, n, stamp)
  local left = tonumber(ARGV[o + 3]) * s.per - math.max(now - stamp, 0) * s.drain
  bucket_put(key, s, s.level - math.max(math.min(n * s.per, left), 0))
end

local function bucket_tell(s, n)
  local next, full = 0, 0
  if s.level > 0 then
    next = math.ceil((s.level + (s.room + 1) * s.per - s.full) / s.drain)
    full = math.ceil(s.level / s.drain)
  end
  return next, full, math.ceil((s.level + n * s.per - s.full) / s.drain)
end
