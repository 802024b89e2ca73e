# Volumes of `terrace serve` while its controller cannot run: a damaged, deleted or full store, open
# tokens, a port in use, a configuration that is wrong. Sourced by bench/control-plane.sh.
if ! command -v qemu-io >/dev/null || ! command -v curl >/dev/null; then
  echo "skipped: serve needs qemu-io and curl"
else
serve_config() { # [LINE...]: writes serve.toml; lines go to [controller].
  {
    printf '%s\n' 'strategy = "noop"' 'window = "500ms"' '[array]' 'dir = "serve-a"' 'host = "here"' \
      '[[tiers]]' 'name = "fast"' 'preset = "pm953"' '[[classes]]' 'name = "default"' \
      '[controller]' 'state = "serve-state"' 'socket = "serve.sock"'
    printf '%s\n' "$@"
  } >"$dir/serve.toml"
}
# serve_begin: starts the server; prints done once it has said that it is ready.
serve_begin() {
  "$terrace" serve --config "$dir/serve.toml" >"$dir/serve.out" 2>"$dir/serve.log" & server=$!
  servers+=" $server"
  seen=refused
  for _ in $(seq 3000); do
    if grep -q '^ready' "$dir/serve.out"; then seen=done; return 0; fi
    kill -0 $server 2>/dev/null || { cp "$dir/serve.log" "$dir/output"; return 0; }
    sleep 0.02
  done
}
# serve_says COMMAND... TEXT: waits until the output of a command has the text.
serve_says() {
  local text=${*: -1}
  for _ in $(seq 600); do
    "${@:1:$#-1}" >"$dir/output" 2>&1 || true
    grep -qF -- "$text" "$dir/output" && { echo named; return 0; }
    sleep 0.1
  done
  echo "not named"
}
serve_get() { curl -sS --unix-socket "$dir/serve.sock" "http://terrace$1"; }
serve_status() { "$terrace" array status --array "$dir/serve-a"; }
serve_pause() { "$terrace" pause --controller "unix:$dir/serve.sock"; }

mkdir "$dir/serve-d"
"$terrace" tier add fast --array "$dir/serve-a" --dir "$dir/serve-d" --size 64MiB >/dev/null 2>&1
"$terrace" volume create db --array "$dir/serve-a" --size 8MiB --tier fast >/dev/null 2>&1
serve_config
serve_begin
put serve-a db 0x5a
stop

cp "$dir/serve-state/terrace.db" "$dir/serve.db"
printf 'no database, but longer than 512 bytes: %1000s' x >"$dir/serve-state/terrace.db"
row "config check: damaged store" refused "$(outcome "$terrace" config check "$dir/serve.toml")"
row "  its reason" named "$(names 'is damaged')"
serve_begin
row "serve: damaged store" done "$seen"
row "  volume" right "$(holds serve-a db 0x5a)"
row "  array status" named "$(serve_says serve_status 'is damaged')"
row "  metrics" named "$(serve_says serve_get /metrics 'terrace_store_up 0')"
row "  status" named "$(serve_says serve_get /v1/status '"kind":"store-failing"')"
row "  order" refused "$(outcome serve_pause)"
rm -f "$dir"/serve-state/terrace.db*
row "  metrics, store moved away" named "$(serve_says serve_get /metrics 'terrace_store_up 1')"
row "  order, store moved away" done "$(outcome serve_pause)"
rm "$dir/serve-state/terrace.db"
row "serve: store deleted while it runs" named "$(serve_says serve_status 'deleted or moved while in use')"
row "  order" refused "$(outcome serve_pause)"
row "  volume" right "$(holds serve-a db 0x5a)"
stop

echo "operate me 0123456789abcdef" >"$dir/serve-tokens"
chmod 644 "$dir/serve-tokens"
serve_config 'listen = "127.0.0.1:0"' 'tokens = "serve-tokens"'
row "config check: token file of mode 644" refused "$(outcome "$terrace" config check "$dir/serve.toml")"
row "  its line" named "$(names 'serve.toml:15: controller.tokens')"
serve_begin
row "serve: token file of mode 644" done "$seen"
row "  volume" right "$(holds serve-a db 0x5a)"
row "  array status" named "$(serve_says serve_status 'chmod 600')"
stop

serve_config 'listen = "nowhere"' 'tokens = "serve-tokens"'
serve_begin
row "serve: invalid controller.listen" done "$seen"
row "  array status" named "$(serve_says serve_status 'controller.listen')"
stop

if [ "$(id -u)" = 0 ] && [ -z "$mounted" ] && mkdir "$dir/serve-full" \
  && mount -t tmpfs -o size=4m none "$dir/serve-full" 2>/dev/null; then
  mounted=$dir/serve-full
  serve_config
  sed -i 's/serve-state/serve-full/' "$dir/serve.toml"
  serve_begin
  dd if=/dev/zero of="$dir/serve-full/fill" bs=4k >/dev/null 2>&1 || true
  row "serve: state disk full while it runs" named "$(serve_says serve_get /metrics 'terrace_store_up 0')"
  row "  status" named "$(serve_says serve_get /v1/status '"kind":"store-failing"')"
  row "  volume" right "$(holds serve-a db 0x5a)"
  stop
  row "config check: full state disk" refused "$(outcome "$terrace" config check "$dir/serve.toml")"
  serve_begin
  row "serve: full state disk at the start" done "$seen"
  row "  volume" right "$(holds serve-a db 0x5a)"
  row "  array status" named "$(serve_says serve_status 'nothing is decided or ordered')"
  rm "$dir/serve-full/fill"
  row "  metrics, with free space again" named "$(serve_says serve_get /metrics 'terrace_store_up 1')"
  stop
  umount "$dir/serve-full"
  mounted=
else
  echo "skipped: full state disk needs root and tmpfs"
fi
fi
