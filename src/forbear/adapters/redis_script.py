"""The script that a RedisBudget runs on Redis to borrow tokens. Floor: acts.

Atomic, and one key: any node of a cluster that has it will do. Times are the server's, in
milliseconds. A key that is not there is a full bucket. ``lent`` are the tokens of running leases by
when they end, to the second, without the first token of each, which is spent at once by whoever
asks.

It returns the tokens lent and the end of their lease, which is their number; ``{-1, 0}``: the key
holds something else.
"""

from __future__ import annotations

__all__ = ["SCRIPT"]

SCRIPT = """
local floor, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local deposit, elapsed = tonumber(ARGV[3]), tonumber(ARGV[4])
local left, number, size = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local wanted, lasts = tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local tokens, at, full_at, lent = burst, now, now, {}
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then
    if string.find(fields.err, 'WRONGTYPE') then return {-1, 0} end
    return fields
end
for i = 1, #fields, 2 do
    local name, value = fields[i], tonumber(fields[i + 1])
    if name == 'tokens' then tokens = value
    elseif name == 'at' then at = value
    elseif name == 'full_at' then full_at = value
    elseif value and tonumber(name) then lent[name] = value
    else return {-1, 0} end
end
if not (tokens and at and full_at) then return {-1, 0} end

tokens = tokens + math.max(0, now - at) / 1000 * floor
for ends_at, some in pairs(lent) do
    if tonumber(ends_at) <= now then
        tokens = tokens + some
        lent[ends_at] = nil
        redis.call('HDEL', KEYS[1], ends_at)
    end
end
if tokens >= burst then
    tokens, full_at = burst, now
end
if deposit > 0 then
    tokens = tokens + deposit * math.min(1, math.max(0, now - full_at) / math.max(1, elapsed))
end
if size > 1 and lent[number] then
    if lent[number] > size - 1 then redis.call('HINCRBY', KEYS[1], number, 1 - size)
    else redis.call('HDEL', KEYS[1], number) end
elseif size > 1 then
    left = left - (size - 1)
end
tokens = math.min(burst, tokens + left)

local lend, ends_at = 0, 0
if tokens >= 1 then
    lend = math.min(math.floor(tokens), wanted + math.floor(tokens / 10))
    tokens = tokens - lend
    ends_at = math.ceil((now + lasts) / 1000) * 1000
    if lend > 1 then redis.call('HINCRBY', KEYS[1], ends_at, lend - 1) end
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', now, 'full_at', full_at)
local until_full = 86400000
if floor > 0 then until_full = math.min(until_full, math.ceil((burst - tokens) / floor * 1000)) end
redis.call('PEXPIRE', KEYS[1], math.max(until_full, lasts + 1000))
return {lend, ends_at}
"""
