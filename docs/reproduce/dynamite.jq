# The tables of dynamite.md from `terrace reproduce dynamite -o json`.
def digits($n): if . == null then "" else (. * pow(10; $n) | round / pow(10; $n) | tostring) end;
def several: .n > 1 and .least != .most;
def spread($n): if . == null then "" elif several then "\(.mean | digits($n)) (\(.least | digits($n))–\(.most | digits($n)))" else .mean | digits($n) end;
def places: if . == null then 0 else fabs | if . >= 100 then 0 elif . >= 10 then 1 elif . >= 1 then 2 else 3 end end;
def row: "| " + join(" | ") + " |";

"## claims",
(["claim", "from", "published", "here", ""] | row), "|---|---|---|---|---|",
(.scorecard[] | [.says, .source, (.published | digits(2)), ((.ours | places) as $n | (.spread // {mean: .ours, n: 1}) | spread($n)) + (if .unit == "" then "" else " " + .unit end),
  (if .verdict == "disagrees" then "**disagrees**" else .verdict end) + (if .outlook == "open" then "" else " (\(.outlook))" end)] | row),
"",
"## variants",
(["variant", "cache, GiB", "ordered", "effective", "USR-1", "FIO", "both, in the peak", "USR-1's p99 in the peak, ms", "peak done"] | row), "|---|---|---|---|---|---|---|---|---|",
(.over_seeds[] | [.variant, (.cache_gib | spread(1)), (.ordered_min | spread(1)), (.effective_min | spread(1)), (.usr1_violation_min | spread(1)),
  (.fio_violation_min | spread(1)), (.violation_peak_min | spread(1)), (.usr1_p99_ms | spread(1)), (.peak_done_min | spread(1))] | row),
"",
"## recorded volumes",
(["volume", "requests", "peak over mean", "writes", "violation, nothing done", "answered", "first decision"] | row), "|---|---|---|---|---|---|---|",
(.recorded[] | [.name, (.requests | tostring), (.peak_over_mean | digits(1)), "\(.write_share * 100 | digits(0)) %",
  (.violation_min | map(spread(1)) | join(" + ")), (.answered_min | map(spread(1)) | join(" + ")), .first_decision] | row)
