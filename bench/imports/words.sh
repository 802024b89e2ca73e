# Messages that name the cause and the right command.
mkdir "$dir/words"
printf '[[tiers]]\nname = "fast"\npreset = "nvme-tlc"\n\n[[volumes]]\nname = "a"\nsize = "1 GiB"\n' >"$dir/words/scenario.toml"
printf '[controller]\nstate = "state"\n' >"$dir/words/live.toml"
printf '0,20941264,8192,W,0.551706\n' >"$dir/words/trace.csv"
wrong() { # CASE TEXT COMMAND...: the command fails, and its message has the text
  local case=$1 text=$2; shift 2
  row "$case" refused "$(outcome "$@")"
  row "  the next step" named "$(names "$text")"
}
wrong "a scenario for serve" 'terrace sim run' "$terrace" serve --config "$dir/words/scenario.toml"
wrong "a trace for serve" 'terrace trace info' "$terrace" serve --config "$dir/words/trace.csv"
wrong "a live configuration for sim run" 'terrace serve --config' "$terrace" sim run "$dir/words/live.toml" --no-record
wrong "a trace for sim run" 'terrace trace info' "$terrace" sim run "$dir/words/trace.csv" --no-record
wrong "a scenario for trace info" 'terrace sim run' "$terrace" trace info "$dir/words/scenario.toml"
wrong "a scenario for sim cache" 'terrace sim run' "$terrace" sim cache "$dir/words/scenario.toml"
wrong "a word for the number of a plan" \
  "invalid value 'foo' for '[PLAN]': expected a whole number, such as 12" "$terrace" plan foo
wrong "a word for a seed" 'expected a whole number' "$terrace" sim run "$dir/words/scenario.toml" --seed x
row "types of the program in the help" 0 "$("$terrace" --help | grep -c 'ControlRequest' || true)"
if command -v virsh >/dev/null; then
  # virsh gives the reason in its last line.
  reason=$(virsh --readonly -c foo:///x list 2>&1 | tail -1) || true
  wrong "a hypervisor that libvirt does not know" "${reason#error: }" "$terrace" trial foo:///x --for 1m
else
  echo "skipped: needs virsh"
fi
