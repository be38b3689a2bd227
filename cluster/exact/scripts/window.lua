-- A window holds where it begins, or ends if it is a period of the calendar, and how many tokens were taken in it.
local function window_look(key, o, s)
  s.limit, s.period = tonumber(ARGV[o]), tonumber(ARGV[o + 1])
  s.used, s.start = 0, now
  local v = redis.call('GET', key)
  if v then
    if #v ~= 16 then
      return error(wrong(key))
    end
    local start, used = struct.unpack('<dd', v)
    if start > now then -- the clock was set back
      s.heal = true
      s.used = used
    elseif now < start + s.period then
      s.start, s.used = start, used
    end
  end
  s.left = s.start + s.period - now
  s.room = math.max(s.limit - s.used, 0)
end

local function window_keep(key, s, n)
  s.used = math.max(s.used + n, 0)
  if s.used == 0 then
    redis.call('DEL', key)
  else
    put(key, struct.pack('<dd', s.start, s.used), math.ceil(s.left / 1000) + 1)
  end
  s.room = math.max(s.limit - s.used, 0)
end

local function window_back(key, s, n, stamp)
  if stamp >= s.start then
    window_keep(key, s, -n)
  end
end

local function window_tell(s)
  local left = 0
  if s.used > 0 then
    left = s.left
  end
  return left, left, s.left
end

-- The caller tells the ends of three periods in a row, and an instant in the first: which of them it is, the clock of the
-- server decides. If it is none, nothing is decided, and the caller asks again.
local function calendar_end(o, at)
  if at >= tonumber(ARGV[o + 1]) then
    for i = o + 2, o + 4 do
      if at < tonumber(ARGV[i]) then
        return tonumber(ARGV[i])
      end
    end
  end
end

local function calendar_look(key, o, s)
  s.limit, s.start = tonumber(ARGV[o]), calendar_end(o, now)
  if not s.start then
    s.elsewhere = true
    return
  end
  s.used, s.room, s.left = 0, 0, s.start - now
  local v = redis.call('GET', key)
  if v then
    if #v ~= 16 then
      return error(wrong(key))
    end
    local ends, used = struct.unpack('<dd', v)
    if ends >= s.start then
      s.used = used
      s.heal = ends > s.start -- the clock was set back: what was used up stays so, until this period ends
    end
  end
  s.room = math.max(s.limit - s.used, 0)
end

local function calendar_back(key, o, s, n, stamp)
  if calendar_end(o, stamp) == s.start then
    window_keep(key, s, -n)
  end
end
