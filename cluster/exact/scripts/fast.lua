-- What limit_main.lua does for one bucket, which is what most limits are, in half the time: with the same arguments, except that
-- it gives nothing back, and the same reply. See limit_bucket.lua for what the figures mean.
local key, n = KEYS[1], tonumber(ARGV[1])
local per, drain, full = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local level, heal = 0, false
local v = redis.call('GET', key)
if v then
  if #v ~= 24 then
    return redis.error_reply('WRONGTYPE ' .. key .. ' does not hold what this limit keeps there')
  end
  local at, kept
  level, at, kept = struct.unpack('<ddd', v)
  if kept ~= per then
    level = math.ceil(level / kept * per)
  end
  level = level - (now - at) * drain
  if now < at and level > full then
    level, heal = full, true
  elseif level < 0 then
    level = 0
  end
end

local room = math.max(math.floor((full - level) / per), 0)
local take = n
if room < n then
  take = 0
  if ARGV[2] == 'some' then
    take, n = room, math.min(n, room + math.floor(full / per))
  end
end
if take > 0 or heal and n > 0 then
  level = level + take * per
  room = room - take
  local value, ms = struct.pack('<ddd', level, now, per), math.ceil(level / drain / 1000) + 1
  local done = redis.pcall('SET', key, value, 'PX', ms)
  if type(done) == 'table' and done.err then
    if not v then
      return done
    end
    redis.call('PEXPIRE', key, ms) -- see put in limit_wrong.lua
    redis.call('SET', key, value, 'PX', ms)
  end
end
if level == 0 then
  return {now, take, 0, 0, room, 0, 0}
end
local rule, wait = 0, 0
if room < n - take then
  rule, wait = 1, math.ceil((level + (n - take) * per - full) / drain)
end
return {now, take, rule, wait, room, math.ceil((level + (room + 1) * per - full) / drain), math.ceil(level / drain)}
