-- A ring holds how many tokens were taken in each of the last sub-windows, the oldest first, behind a header: the number of
-- the youngest, the sum of all, and how many µs each has. What was taken counts to the end of its sub-window and for a
-- window from then on.
local function ring_look(key, o, s)
  s.limit, s.quantum, s.slots = tonumber(ARGV[o]), tonumber(ARGV[o + 1]), tonumber(ARGV[o + 2]) + 1
  s.head, s.sum = math.floor(now / s.quantum), 0
  local v = redis.call('GET', key)
  if v then
    if #v < 32 then
      return error(wrong(key))
    end
    local head, sum, quantum = struct.unpack('<ddd', v)
    local gone = s.head - head
    if quantum ~= s.quantum or #v ~= 24 + 8 * s.slots or gone < -1 then
      -- The rule has changed, or the clock was set back: all of it counts as taken now.
      s.sum, s.heal = sum, true
      s.ring = string.rep('\0', 8 * s.slots - 8) .. struct.pack('<d', sum)
    elseif gone < s.slots then
      if gone < 0 then
        s.head, gone = head, 0
      end
      s.ring, s.sum = string.sub(v, 25), sum
      for i = 0, gone - 1 do
        s.sum = s.sum - struct.unpack('<d', s.ring, 8 * i + 1)
      end
      if gone > 0 then
        s.ring = string.sub(s.ring, 8 * gone + 1) .. string.rep('\0', 8 * gone)
      end
    end
  end
  s.ring = s.ring or string.rep('\0', 8 * s.slots)
  s.room = math.max(s.limit - s.sum, 0)
end

local function ring_store(key, s)
  if s.sum == 0 then
    redis.call('DEL', key)
  else
    put(key, struct.pack('<ddd', s.head, s.sum, s.quantum) .. s.ring,
      math.ceil(((s.head + s.slots) * s.quantum - now) / 1000) + 1)
  end
  s.room = math.max(s.limit - s.sum, 0)
end

-- ring_add adds n to a sub-window, of which the oldest is 0.
local function ring_add(s, i, n)
  local here = struct.unpack('<d', s.ring, 8 * i + 1)
  n = math.max(n, -here)
  s.ring = string.sub(s.ring, 1, 8 * i) .. struct.pack('<d', here + n) .. string.sub(s.ring, 8 * i + 9)
  s.sum = s.sum + n
  return n
end

local function ring_keep(key, s, n)
  if n > 0 then
    ring_add(s, s.slots - 1, n)
  end
  ring_store(key, s)
end

-- ring_used returns the first sub-window from i on in which something was taken.
local function ring_used(s, i)
  local at = string.find(s.ring, '[^%z]', 8 * i + 1)
  return at and math.floor((at - 1) / 8)
end

local function ring_back(key, s, n, stamp)
  local i = math.floor(stamp / s.quantum) - s.head + s.slots - 1
  if i >= 0 and i < s.slots then
    ring_add(s, i, -n)
    ring_store(key, s)
  end
end

-- ring_until returns how long it takes until n of what counts does not any more.
local function ring_until(s, n)
  local i = ring_used(s, 0)
  while i do
    n = n - struct.unpack('<d', s.ring, 8 * i + 1)
    if n <= 0 then
      return (s.head + i + 1) * s.quantum - now
    end
    i = ring_used(s, i + 1)
  end
  return 0
end

local function ring_tell(s, n)
  local next, full = 0, 0
  if s.sum > 0 then
    next = ring_until(s, s.sum - s.limit + s.room + 1)
    local idle = 0 -- sub-windows since something was taken
    if struct.unpack('<d', s.ring, 8 * s.slots - 7) == 0 then
      idle = math.floor((string.find(string.reverse(s.ring), '[^%z]') - 1) / 8)
    end
    full = (s.head + s.slots - idle) * s.quantum - now
  end
  local wait = 0
  if n > s.room then
    wait = ring_until(s, s.sum + n - s.limit)
  end
  return next, full, wait
end
