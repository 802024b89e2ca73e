# The tables of ops-isolation.md, from `terrace reproduce ops-isolation -o json`.
def digits($n): if . == null then "-" else
    (. * pow(10; $n) | round) as $i | (if $i < 0 then "-" else "" end) as $sign | ($i | fabs | round | tostring) as $t
    | (if ($t | length) <= $n then ("0" * ($n + 1 - ($t | length))) + $t else $t end) as $p
    | $sign + $p[:-$n] + "." + $p[-$n:] end;
def signed($n): digits($n) | if startswith("-") then . else "+" + . end;
def half($n): (if .interval then " ± " + ((.interval.ci95_high - .interval.ci95_low) / 2 | digits($n)) else "" end);
def plain($n): (.mean | digits($n)) + half($n);
def change($n): if . == null then "-" else (.mean | signed($n)) + half($n) end;
def line: "| " + join(" | ") + " |";
def head: line, ([range(length)] | map("---") | line);

["fcfs", "host-weights", "equal-time", "weighted-time"] as $services
| ["one-pool", "handles-initially", "handles-persistently", "isolated-equal", "isolated-by-model", "isolated-by-controller"] as $sharings
| ([.figures.rows[] | select(.experiment == "isolation")]) as $rows
| (reduce $rows[].mix as $m ([]; if index([$m]) then . else . + [$m] end)) as $mixes
| "## Scorecard",
  (["claim", "ours", "verdict"] | head),
  (.scorecard[] | [.id, ([.ours[].ours | plain(3)] | join("; ")), .verdict] | line),
  "", "## Requests outstanding: error of proportionality",
  (.figures.rows[] | select(.experiment == "depth") | [.device, .mix, (.error.mean | digits(3))] | line),
  "", "## Sharing and service: error of proportionality",
  (["mix", "sharing"] + $services | head),
  ($mixes[] as $m | $sharings[] as $a
    | [$m, $a] + [$services[] as $s | $rows[] | select(.mix == $m and .mode == {sharing: $a, service: $s}) | .error.mean | digits(3)] | line),
  "", "## Isolation alone: change of the error against one pool with the same service",
  (["mix", "service"] + $sharings[1:] | head),
  ($mixes[] as $m | $services[] as $s
    | [$m, $s] + [$sharings[1:][] as $a | .figures.effects[] | select(.mix == $m and .mode == {sharing: $a, service: $s}) | .sharing_alone.error | change(3)] | line),
  "", "## Service alone: change of the error against first come, first served with the same sharing",
  (["mix", "sharing"] + $services[1:] | head),
  ($mixes[] as $m | $sharings[] as $a
    | [$m, $a] + [$services[1:][] as $s | .figures.effects[] | select(.mix == $m and .mode == {sharing: $a, service: $s}) | .service_alone.error | change(3)] | line)
