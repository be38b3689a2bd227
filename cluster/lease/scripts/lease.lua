-- Leases of a rate, with weighted max-min fairness. It stands behind clock.lua, which defines now.
-- package internal/lease has the same algorithm in Go, with the reasons; tests compare them figure by figure.
--
-- KEYS: table (a hash: "m" is the meta data, "n" .. node an entry), marker (one per slot, outlives the tables).
-- ARGV: operation, node, rate, burst, interval, term, reclaim (µs), and by operation:
--   "sync": epoch, seq, ack, want, has, claim, weight, hold -> {seq, epoch, grant, target, gift, learning, hungry, nodes, now}
--   "release": seq                                    -> {now}
--   "take": n                                         -> {taken, left, wait in µs or -1, nodes, learning}
local op, node = ARGV[1], ARGV[2]
local rate, burst = tonumber(ARGV[3]), tonumber(ARGV[4])
local interval, term, reclaim = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local min, max, floor = math.min, math.max, math.floor
local UNLIMITED, RESERVE, HEADROOM, SMALL_TABLE, MIN_TOKENS = 1e300, 0.05, 0.9, 16, 2
local LATENESS, SILENCE = 1100000, 1.5
local ENTRY, META = '<dddddddd', '<dddddddddBc0'
local MARKER_MS = 30 * 24 * 3600 * 1000

local epoch, learn, last, free, level, head, used, nextfill, first, nodes
local function restart(upto)
  epoch = string.format('%.0f', now) .. '.' .. string.sub(node, 1, 8)
  learn, level, head, used, nextfill, first, nodes = upto, UNLIMITED, 0, 0, 0, UNLIMITED, 0
end

-- The epoch says when it began.
local function began() return tonumber(string.match(epoch, '^%d+')) end

-- An entry is {want, weight, grant, expiry, seq, prev, prevexpiry, prevseq}.
local function load(text)
  if not text then return nil end
  return {struct.unpack(ENTRY, text)}
end

local function inuse(e)
  local u = 0
  if now < e[4] then u = e[3] end
  if now < e[7] then u = max(u, e[6]) end
  return u
end

local function mark(known)
  local upto = now + term
  local marked = tonumber(redis.call('GET', KEYS[2]) or nil)
  if not marked or marked > upto then
    marked = upto
  elseif not known then
    upto = marked
  end
  redis.call('SET', KEYS[2], string.format('%.0f', marked), 'PX', MARKER_MS)
  return upto
end

local function poolsize()
  local part = (rate - used) / rate
  if now < learn then part = RESERVE end
  return max(burst * part, min(1, burst))
end

local function spare()
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if all[i] ~= 'm' then
      local e = load(all[i + 1])
      if e[4] > last then e[4] = max(e[4], now + term) end
      if e[7] > last then e[7] = max(e[7], now + term) end
      redis.call('HSET', KEYS[1], all[i], struct.pack(ENTRY, unpack(e, 1, 8)))
    end
  end
  nextfill = now
end

local function open(known)
  local text = redis.call('HGET', KEYS[1], 'm')
  if text then
    redis.call('HDEL', KEYS[1], '') -- a Redis that is full lets a script go on that has begun to write
    learn, last, free, level, head, used, nextfill, first, nodes, epoch = struct.unpack(META, text)
    if now - last > term + reclaim and nodes > 0 then
      redis.call('DEL', KEYS[1])
      restart(now + term)
    elseif now - last > SILENCE * interval and nodes > 1 then
      spare()
    end
  else
    local upto = now
    if rate * interval / 1e6 >= MIN_TOKENS then upto = mark(known) end
    restart(upto)
    last, free = now, poolsize()
  end
  learn = min(learn, now + term + LATENESS)
end

local function save()
  redis.call('HSET', KEYS[1], 'm',
    struct.pack(META, learn, last, free, level, head, used, nextfill, first, nodes, #epoch, epoch))
  local ttl = max(10 * term, 60 * 1e6)
  if rate > 0 then ttl = max(ttl, burst / rate * 1e6) end
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(min(ttl, 1e15) / 1e3) + 1))
end

local function poolrate()
  if now < learn then return rate * RESERVE end
  return max(rate - used, 0)
end

local function accrue()
  local dt = now - last
  if dt > 0 then
    free = min(free + poolrate() * dt / 1e6, poolsize())
  elseif dt < 0 then
    nextfill = now
  end
  last = now
end

local function fill(weight, live)
  table.sort(live, function(a, b) return a[1] / a[2] < b[1] / b[2] end)
  local left, w = rate, weight
  for _, e in ipairs(live) do
    if e[1] / e[2] > left / w then return left / w, 0 end
    left, w = left - e[1], w - e[2]
  end
  return UNLIMITED, HEADROOM * left / weight
end

-- Entries other than that of the caller, mine, are written back only if the clock was set back.
local function recompute(mine)
  local latest = now + term + reclaim
  local live, dead, weight = {mine}, {}, mine[2]
  mine[4], mine[7] = min(mine[4], latest), min(mine[7], latest)
  used, first = inuse(mine), UNLIMITED
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local field = all[i]
    if field ~= 'm' and field ~= 'n' .. node then
      local e = load(all[i + 1])
      if e[4] > latest or e[7] > latest then
        e[4], e[7] = min(e[4], latest), min(e[7], latest)
        redis.call('HSET', KEYS[1], field, struct.pack(ENTRY, unpack(e, 1, 8)))
      end
      if now >= e[4] and now >= e[7] then
        dead[#dead + 1] = field
      else
        live[#live + 1] = e
        used = used + inuse(e)
        weight = weight + e[2]
        first = min(first, max(e[4], e[7]))
      end
    end
  end
  for i = 1, #dead, 1000 do
    redis.call('HDEL', KEYS[1], unpack(dead, i, min(i + 999, #dead)))
  end
  nodes = #live
  level, head = fill(weight, live)
  local step = interval
  if nodes <= SMALL_TABLE then step = floor(step / 4) end
  nextfill = now + step
end

local function held(e, ack, has)
  local use, exp
  if ack == 0 then
    return 0, 0
  elseif ack == e[5] then
    use, exp = e[3], e[4]
  elseif ack == e[8] then
    use, exp = e[6], e[7]
  else
    use, exp = inuse(e), max(e[4], e[7])
  end
  if now >= exp then return 0, 0 end
  return min(use, has), exp
end

local function text(x) return string.format('%.17g', x) end

local function reply(e, weight, gift)
  local learning, hungry = 0, 0
  if now < learn then learning = 1 end
  if level < UNLIMITED then hungry = 1 end
  return {e[5], epoch, text(e[3]), text(min(e[1], level * weight)), text(gift), learning, hungry, nodes, text(now)}
end

local function sync()
  local theirs, seq, ack = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
  local want, has, claim, weight, hold = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
  local field = 'n' .. node
  open(theirs ~= '')
  local e = load(redis.call('HGET', KEYS[1], field))
  if e and ack > e[5] then
    redis.call('DEL', KEYS[1])
    restart(now + term)
    e = nil
  end
  if e and seq <= e[5] then return reply(e, weight, 0) end
  local use, useexp = 0, 0
  if e then
    use, useexp = held(e, ack, has)
  else
    e = {0, 0, 0, 0, 0, 0, 0, 0}
    nodes = nodes + 1
    if now < learn and theirs ~= epoch then
      use, useexp = claim, now + term
      if theirs ~= '' and hold > 0 then learn = max(learn, min(began(), now) + term + LATENESS) end
    end
  end
  e[1], e[2] = want, weight
  accrue()
  if now >= nextfill or now >= first then recompute(e) end
  local old = inuse(e)
  local others = used - old
  local grant = max(min(min(want, level * weight) + head * weight, rate - others), 0)
  if now < learn then grant = min(grant, use) end
  if hold > use * 1.000001 then use, useexp = hold, now + term end
  local gift, more, room = 0, max(grant, use) - old, rate - used
  if more > 0 and room > rate * 1e-9 and now >= learn then
    gift = free * min(more / room, 1)
    free = free - gift
  end
  used = others + max(grant, use)
  free = min(free, poolsize())
  e[6], e[7], e[8] = use, useexp, ack
  e[3], e[4], e[5] = grant, now + term + reclaim, seq
  first = min(first, e[4])
  redis.call('HSET', KEYS[1], field, struct.pack(ENTRY, unpack(e, 1, 8)))
  save()
  return reply(e, weight, gift)
end

local function release()
  local field = 'n' .. node
  open(false)
  accrue()
  local e = load(redis.call('HGET', KEYS[1], field))
  if e and tonumber(ARGV[8]) > e[5] then
    used = max(used - inuse(e), 0)
    nodes = nodes - 1
    redis.call('HDEL', KEYS[1], field)
  end
  save()
  return {text(now)}
end

local function take()
  local n = tonumber(ARGV[8])
  open(false)
  accrue()
  local taken, wait, learning = 0, 0, 0
  if free >= n then
    free, taken = min(free - n, poolsize()), 1
  else
    wait = -1
    local gain = poolrate()
    if gain > rate * 1e-9 and n <= poolsize() then
      wait = math.ceil(min((n - free) * 1e6 / gain, 1e15))
    elseif now < learn then
      wait = learn - now
    end
  end
  if now < learn then learning = 1 end
  save()
  return {taken, floor(free), wait, nodes, learning}
end

if op == 'sync' then return sync() end
if op == 'take' then return take() end
return release()
