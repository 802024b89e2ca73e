# Steps of .ci/run: a name and the planned seconds on two idle cores for each, and a table at the end.
# Sourced by the script. A step that fails ends the script by `set -e`.

steps_table= steps_name= steps_limit=0 steps_since=0
steps_background= steps_log=

# step SECONDS NAME: ends the step before, begins another one. A step that takes longer is marked; it fails nothing, because a machine may be
# busy.
step() {
  end_of_step
  steps_limit=$1 steps_name=$2 steps_since=$SECONDS
  printf '\n== %s (%s s)\n' "$steps_name" "$SECONDS"
}

end_of_step() {
  local took=$((SECONDS - steps_since)) mark=
  [ -n "$steps_name" ] || return 0
  [ "$took" -le "$steps_limit" ] || mark=' <- longer than planned'
  steps_table+=$(printf '%6d %7d  %s%s' "$took" "$steps_limit" "$steps_name" "$mark")$'\n'
  steps_name=
}

# in_background LOG COMMAND...: runs a command at the lowest priority, in a process group of its own that ends with the script.
in_background() {
  steps_log=$1
  shift
  local idle="nice -n 19"
  ! chrt --idle 0 true 2>/dev/null || idle="chrt --idle 0"
  setsid $idle "$@" </dev/null >"$steps_log" 2>&1 &
  steps_background=$!
}

# Waits for the command in the background and prints its log. Its failure is the step's.
end_of_background() {
  local status=0
  wait "$steps_background" || status=$?
  steps_background=
  cat "$steps_log"
  return "$status"
}

finish_steps() {
  local status=$?
  local failed=$steps_name
  if [ -n "$steps_background" ]; then
    kill -- -"$steps_background" 2>/dev/null || true
    cat "$steps_log" || true
  fi
  end_of_step
  printf '\n  took planned  step\n%s%6d %7d  in all\n' "$steps_table" "$SECONDS" "$1"
  [ "$status" = 0 ] || printf 'FAILED in: %s\n' "$failed"
}
