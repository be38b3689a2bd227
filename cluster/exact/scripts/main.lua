-- ARGV: how many tokens; 'all' to take them if all rules allow it, 'some' to take as many of them as all rules allow, 'back' to
-- give them back; a stamp that says when they were taken; and for each rule, one for each key, its kind and five figures.
-- Taking none tells what could be taken, and changes nothing. With 'all' there may be one more argument for each rule: the number
-- of tokens for its key. Then the number of all is 1.
-- Returns the time, how many tokens were taken, the rule that refused, how long until it does not, and for each rule what
-- remains, how long until there is more, and how long until there is all; and the limit of a rule that is stored. It decides
-- nothing, and tells -1 instead of what was taken, if the caller is wrong about the calendar, or -2 and the limit if a stored
-- rule never lets so many pass.
local n, how, stamp = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local rules, take, short = {}, n, false
local own = 3 + 6 * #KEYS -- before the numbers for each key
for i, key in ipairs(KEYS) do
  local o, s = 6 * i - 2, {}
  local kind = ARGV[o]
  s.kind, s.o, rules[i] = kind, o + 1, s
  if kind == 'b' then
    bucket_look(key, o + 1, s)
  elseif kind == 'w' then
    window_look(key, o + 1, s)
  elseif kind == 'c' then
    calendar_look(key, o + 1, s)
  elseif kind == 's' then
    ring_look(key, o + 1, s)
  else
    log_look(key, o + 1, s)
  end
  if s.elsewhere then
    return {now, -1}
  end
  if stored and how == 'all' and n > (s.limit or math.floor(s.full / s.per)) then
    return {now, -2, s.limit or math.floor(s.full / s.per)}
  end
  s.n = tonumber(ARGV[own + i]) or n
  if s.room < s.n then
    short, take = true, math.min(take, s.room)
  end
end
if how == 'all' and short then
  take = 0
end

local reply, rule, longest = {now, take, 0, 0}, 0, -1
for i, key in ipairs(KEYS) do
  local s, took = rules[i], take
  if ARGV[own + i] then
    took = take * s.n
  end
  local kind = s.kind
  if how == 'back' then
    if kind == 'b' then
      bucket_back(key, s.o, s, n, stamp)
    elseif kind == 'w' then
      window_back(key, s, n, stamp)
    elseif kind == 'c' then
      calendar_back(key, s.o, s, n, stamp)
    elseif kind == 's' then
      ring_back(key, s, n, stamp)
    else
      log_back(key, s, n, stamp)
    end
  elseif took > 0 or s.n > 0 and s.heal then
    if kind == 'b' then
      bucket_put(key, s, s.level + took * s.per)
    elseif kind == 's' then
      ring_keep(key, s, took)
    elseif kind == 'l' then
      log_keep(key, s, took)
    else
      window_keep(key, s, took)
    end
  end
  local left, full, wait = 0, 0, 0
  if how ~= 'back' then
    -- More than can ever pass at once is as much as that.
    local missing = math.min(s.n - took, s.limit or math.floor(s.full / s.per))
    if kind == 'b' then
      left, full, wait = bucket_tell(s, missing)
    elseif kind == 's' then
      left, full, wait = ring_tell(s, missing)
    elseif kind == 'l' then
      left, full, wait = log_tell(key, s, missing)
    else
      left, full, wait = window_tell(s)
    end
  end
  if s.room < s.n - took and wait > longest then
    rule, longest = i, wait
  end
  local r = 3 * i + 2
  reply[r], reply[r + 1], reply[r + 2] = s.room, left, full
end
reply[3], reply[4] = rule, math.max(longest, 0)
if stored then
  reply[#reply + 1] = rules[1].limit or math.floor(rules[1].full / rules[1].per)
end
return reply
