"""Scripts that run atomically inside Redis, for versions 6.2 and 7.

Instants are Redis' own clock, in milliseconds, so that no two machines' clocks are compared. A script that is sent
twice, because its answer was lost, does no more than once sent.

**When a member is gone.** When it has been silent for `ttl`. But after an outage of the store all have, and are
well: where *nobody* was heard for `ttl`, neither agent nor gateway, all members get one more `ttl` from the next
call on. `heard` holds when anybody was heard last, and since when somebody has been.

**Sorted sets for numbers.** An agent may write the hash of members and must not read it, so its user has no
command that reads a hash: whatever else agents keep here is in sorted sets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the name that Redis gives it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())

    @property
    def commands(self) -> frozenset[str]:
        """Redis' commands that it calls, in lower case."""
        return frozenset(name.lower() for name in re.findall(r"redis\.p?call\('(\w+)'", self.text))


_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

_CHANGED = (
    _NOW
    + """
local function changed(version)
  -- The first version is the time, so that it rises even where the store forgot everything.
  if redis.pcall('SETNX', version, now) == 0 then redis.pcall('INCR', version) end
end
"""
)

_MEMBERS = (
    _CHANGED
    + """
-- KEYS: members, seen, version, heard, digests; for an announcement drains, too. ARGV[1]: ttl in ms.
local ttl = tonumber(ARGV[1])
-- Writes fail while the store takes none (a full disk, a replica): whoever reads is answered all the same.
local function expire(calls_often)
  local last = tonumber(redis.call('ZSCORE', KEYS[4], 'last') or 0)
  local since = tonumber(redis.call('ZSCORE', KEYS[4], 'since') or 0)
  if now - last > ttl and since <= last then
    since = now
    redis.pcall('ZADD', KEYS[4], now, 'since')
  end
  if calls_often and (now - last) * 8 > ttl then redis.pcall('ZADD', KEYS[4], now, 'last') end
  if now - since <= ttl then return end
  local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now - ttl)
  for _, id in ipairs(gone) do
    redis.pcall('HDEL', KEYS[1], id)
    redis.pcall('ZREM', KEYS[2], id)
    redis.pcall('ZREM', KEYS[5], id)
  end
  if #gone > 0 then changed(KEYS[3]) end
end
"""
)

ANNOUNCE = Script(
    _MEMBERS
    + """
-- ARGV: ttl, instance, member, digest of it (a number). Whether it shall drain. The digest says whether the member
-- is news: no agent may read what others announced, and so none can read its own.
redis.call('ZADD', KEYS[2], now, ARGV[2])
expire(true)
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if redis.call('ZADD', KEYS[5], 'CH', ARGV[4], ARGV[2]) == 1 then changed(KEYS[3]) end
return redis.pcall('SISMEMBER', KEYS[6], ARGV[2]) == 1
"""
)

LEAVE = Script(
    _MEMBERS
    + """
-- ARGV: ttl, instance.
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[5], ARGV[2])
if redis.call('HDEL', KEYS[1], ARGV[2]) == 1 then changed(KEYS[3]) end
return 1
"""
)

LIST = Script(
    _CHANGED
    + """
-- KEYS: a part of the listing, version of the members. ARGV: a name, what is said of it now; empty: nothing.
-- Gateways read the members anew where it has changed.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') == ARGV[2] then return 0 end
if ARGV[2] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
changed(KEYS[2])
return 1
"""
)

VERSION = Script(
    _MEMBERS
    + """
expire(true)
return tonumber(redis.call('GET', KEYS[3]) or 0)
"""
)

MEMBERS = Script(
    _MEMBERS
    + """
-- ARGV: ttl, whether the caller calls often.
expire(ARGV[2] == '1')
return redis.call('HVALS', KEYS[1])
"""
)

PEERS = Script(
    _NOW
    + """
-- KEYS: gateways, seen. ARGV: ttl in ms, name, gateway. Those that announced themselves lately.
redis.call('ZADD', KEYS[2], now, ARGV[2])
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now - ARGV[1])) do
  redis.call('HDEL', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
end
return redis.call('HVALS', KEYS[1])
"""
)

LEAVE_PEERS = Script("""
-- KEYS: gateways, seen. ARGV: name.
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
""")

DRAIN = Script(
    _NOW
    + """
-- KEYS: drains, when each was asked for. ARGV: for how long a request that nobody heeds is kept (ms), instances.
-- An agent may have made something else of a set that was not there.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'set' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[1])) do
  redis.call('SREM', KEYS[1], old)
  redis.call('ZREM', KEYS[2], old)
end
for i = 2, #ARGV do
  if redis.call('SADD', KEYS[1], ARGV[i]) == 1 then redis.call('ZADD', KEYS[2], now, ARGV[i]) end
end
return 1
"""
)

WALL = Script(
    _NOW
    + """
-- KEYS: offsets by host, when a process began there last. ARGV: for how long a host is remembered (ms), host,
-- offset. The offset of its first process.
redis.call('ZADD', KEYS[2], now, ARGV[2])
redis.call('ZADD', KEYS[1], 'NX', ARGV[3], ARGV[2])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[1])) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
end
return redis.call('ZSCORE', KEYS[1], ARGV[2])
"""
)

REPORT = Script(
    _NOW
    + """
-- KEYS: sequences, gateways, then for each model: arrivals, shared, traffic, latencies, gauges.
-- ARGV: gateway, sequence, windows kept, for how long a silent gateway is remembered (ms), then for each model
-- JSON: whole (what to add), real (what to add), arrivals, shared and latencies (pairs), gauges, failures (kinds,
-- the last first). Whether it was counted. Failures are kept among the traffic, as JSON: a few kinds, likewise.
local gateway, sequence, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])) do
  redis.call('ZREM', KEYS[2], old)
  redis.call('HDEL', KEYS[1], old)
end
redis.call('ZADD', KEYS[2], now, gateway)
if sequence <= tonumber(redis.call('HGET', KEYS[1], gateway) or -1) then return 0 end
redis.call('HSET', KEYS[1], gateway, ARGV[2])
local function forget_old_windows(key)
  if redis.call('HLEN', key) <= 2 * keep then return end
  local windows, newest = redis.call('HKEYS', key), 0
  for _, window in ipairs(windows) do newest = math.max(newest, tonumber(window)) end
  for _, window in ipairs(windows) do
    if tonumber(window) <= newest - keep then redis.call('HDEL', key, window) end
  end
end
local function add_failures(key, failures, most)
  local known = cjson.decode(redis.call('HGET', key, 'failures') or '[]')
  for n = #failures, 1, -1 do
    local new = failures[n]
    for place, old in ipairs(known) do
      if old.kind == new.kind then
        new.count, new.since = new.count + old.count, old.since
        table.remove(known, place)
        break
      end
    end
    table.insert(known, 1, new)
  end
  while #known > most do table.remove(known) end
  redis.call('HSET', key, 'failures', cjson.encode(known))
end
for i = 5, #ARGV do
  local model, first = cjson.decode(ARGV[i]), 3 + 5 * (i - 5)
  for _, pair in ipairs(model.arrivals) do redis.call('HINCRBY', KEYS[first], pair[1], pair[2]) end
  for _, pair in ipairs(model.shared) do redis.call('HINCRBY', KEYS[first + 1], pair[1], pair[2]) end
  for name, count in pairs(model.whole) do redis.call('HINCRBY', KEYS[first + 2], name, count) end
  for name, sum in pairs(model.real) do redis.call('HINCRBYFLOAT', KEYS[first + 2], name, sum) end
  for _, pair in ipairs(model.latencies) do redis.call('HINCRBY', KEYS[first + 3], pair[1], pair[2]) end
  redis.call('HSET', KEYS[first + 4], gateway, model.gauges)
  if model.failures then add_failures(KEYS[first + 2], model.failures, model.most_failures) end
  forget_old_windows(KEYS[first])
  forget_old_windows(KEYS[first + 1])
end
return 1
"""
)

TRAFFIC = Script(
    _NOW
    + """
-- KEYS: gateways, traffic, latencies, gauges. ARGV: after how long a silent gateway is gone (ms).
local gauges = redis.call('HGETALL', KEYS[4])
local alive = {}
for i = 1, #gauges, 2 do
  local heard = redis.call('ZSCORE', KEYS[1], gauges[i])
  if heard and now - tonumber(heard) <= tonumber(ARGV[1]) then
    alive[#alive + 1] = gauges[i + 1]
  else
    redis.call('HDEL', KEYS[4], gauges[i])
  end
end
return {redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]), alive}
"""
)

TAKE = Script("""
-- KEYS: lease, epoch. ARGV: holder, ttl in ms. The new epoch, or 0.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
""")

RENEW = Script("""
-- KEYS: lease, epoch. ARGV: holder, ttl in ms, epoch. Whether it still holds.
-- A lease that ran out is renewed all the same while nobody else has taken it: the epoch says so.
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
""")

RELEASE = Script("""
-- KEYS: lease, epoch. ARGV: epoch. The epoch rises, so that who released writes no more.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('INCR', KEYS[2])
return 1
""")

FENCE = Script("""
-- KEYS: epoch. ARGV: the epoch of a lease that is kept elsewhere. Whether no later one was here.
if tonumber(redis.call('GET', KEYS[1]) or 0) > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
""")

APPEND = Script("""
-- KEYS: epoch, journal, stream. ARGV: epoch, segment, lines before this one, line. Whether it was written.
-- What stands one further than the writer knows is its own line, whose answer was lost: it is replaced, by itself
-- or by another one, for nobody has acted on it.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('HGET', KEYS[2], 'last') ~= ARGV[2] then return 0 end
local ahead = redis.call('XLEN', KEYS[3]) - ARGV[3]
local bytes = #ARGV[4]
if ahead == 1 then
  local entry = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
  redis.call('XDEL', KEYS[3], entry[1])
  bytes = bytes - #entry[2][2]
elseif ahead ~= 0 then
  return 0
end
redis.call('XADD', KEYS[3], '*', 'line', ARGV[4])
redis.call('HINCRBY', KEYS[2], 'bytes', bytes)
return 1
""")

OPEN = Script("""
-- KEYS: epoch, journal, the new stream, the streams to drop. ARGV: epoch, segment, first one kept, header line.
-- Whether the segment is open. One that has no line but its header was opened by this call, whose answer was lost.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = tonumber(redis.call('HGET', KEYS[2], 'last') or 0)
if last >= tonumber(ARGV[2]) then
  if last > tonumber(ARGV[2]) or redis.call('XLEN', KEYS[3]) ~= 1 then return 0 end
  redis.call('DEL', KEYS[3])
end
redis.call('XADD', KEYS[3], '*', 'line', ARGV[4])
redis.call('HSET', KEYS[2], 'last', ARGV[2], 'first', ARGV[3], 'bytes', #ARGV[4])
for number = 4, #KEYS do redis.call('DEL', KEYS[number]) end
return 1
""")

NOTE = Script("""
-- KEYS: the transitions told before, the ledger, what was folded of it. ARGV: what tells a transition from others,
-- the transition, its instant. What is told of a time that was folded is told too late.
local folded = redis.call('HGET', KEYS[3], 'to')
if folded and tonumber(ARGV[3]) < tonumber(folded) then return 0 end
if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[2]) end
return 1
""")

LEDGER = Script("""
-- KEYS: the ledger, what was folded of it. ARGV: how many lines are known, the last of them, up to when they were
-- folded. Whether all lines follow; up to when they were folded, the rollups where that is new, lines.
local folded = redis.call('HGET', KEYS[2], 'to') or ''
local known = tonumber(ARGV[1])
if known > 0 and folded == ARGV[3] then
  local lines = redis.call('LRANGE', KEYS[1], known - 1, -1)
  if lines[1] == ARGV[2] then
    table.remove(lines, 1)
    return {0, folded, '', lines}
  end
end
local rollups = folded ~= ARGV[3] and redis.call('HGET', KEYS[2], 'rollups') or ''
return {1, folded, rollups, redis.call('LRANGE', KEYS[1], 0, -1)}
""")

COMPACT = Script("""
-- KEYS: the ledger, the transitions told before, what was folded. ARGV: how many lines were read, up to when they
-- were folded, up to when they are now, the rollups, how many lines are kept, these, what tells each from others.
-- Whether it was done: not where somebody has written or folded meanwhile.
if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end
if (redis.call('HGET', KEYS[3], 'to') or '') ~= ARGV[2] then return 0 end
local kept = tonumber(ARGV[5])
redis.call('DEL', KEYS[1], KEYS[2])
for i = 6, 5 + kept do
  redis.call('RPUSH', KEYS[1], ARGV[i])
  redis.call('SADD', KEYS[2], ARGV[i + kept])
end
redis.call('HSET', KEYS[3], 'to', ARGV[3], 'rollups', ARGV[4])
return 1
""")

PUT_VERSIONS = Script("""
-- KEYS: epoch, versions. ARGV: the lease's epoch, model, its versions. Whether they were written.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
""")

ONCE = Script(
    _NOW
    + """
-- KEYS: what was done, a set of `DEADLINE NAME VALUE`, as no key that its user reads is one. ARGV: a name, for how
-- many ms it is kept, 1 where nothing of it may be there, its value. Whether it was kept.
for _, known in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local deadline, name = string.match(known, '^(%d+) (%S+) ')
  local is_over = tonumber(deadline) <= now
  if name == ARGV[1] and ARGV[3] == '1' and not is_over then return 0 end
  if name == ARGV[1] or is_over then redis.call('SREM', KEYS[1], known) end
end
redis.call('SADD', KEYS[1], string.format('%d', now + tonumber(ARGV[2])) .. ' ' .. ARGV[1] .. ' ' .. ARGV[4])
return 1
"""
)

SWAP = Script("""
-- KEYS: a value. ARGV: what it was when it was read, empty for none; what it is to be. Whether it is that now.
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[2] then return 1 end
if kept ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
""")
