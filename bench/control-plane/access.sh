# Access: half-sent bodies, refused, expired and rotated tokens, the page's session, open key files,
# hidden characters in names. Real requests over the socket and TLS, by curl and python3.
access_needs() {
  local tool
  for tool in curl python3; do
    command -v "$tool" >/dev/null || { echo "skipped: access.sh needs $tool"; return 1; }
  done
}

access_config() { # EXTRA: lines of [controller]
  cat >"$dir/access.toml" <<END
window = "1s"
[controller]
state = "$dir/access-state"
socket = "$dir/access.sock"
listen = "127.0.0.1:$access_port"
tokens = "$dir/access-tokens"
$1
[[tiers]]
name = "fast"
preset = "nvme-tlc"
END
}

access_start() {
  rm -f "$dir/access.sock"
  "$terrace" serve --config "$dir/access.toml" >"$dir/access.log" 2>&1 & server=$!
  servers+=" $server"
  for _ in $(seq 1500); do
    grep -q '^ready' "$dir/access.log" && return 0
    kill -0 $server 2>/dev/null || return 1
    sleep 0.02
  done
  return 1
}

# access_get PATH [CURL-OPTION...]: prints the status; the body is in $dir/output.
access_get() {
  local path=$1; shift
  curl -sk -o "$dir/output" -w '%{http_code}' "$@" "https://127.0.0.1:$access_port$path"
}
access_bearer() { access_get /v1/status -H "Authorization: Bearer $1"; }
access_rss() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$server/status"; }

access_cases() {
  local admin=admin-0123456789abcdef agent=agent-0123456789abcdef old=old-0123456789abcdef0
  access_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  umask 077
  printf 'admin root %s\nagent alpha %s\noperate alice %s expires=2001-01-01\n' $admin $agent $old >"$dir/access-tokens"
  access_config ''
  access_start || { row "access: the controller starts" done refused; cat "$dir/access.log"; return; }

  # 24 reports of 60 MiB, each sent to its half, on connections that stay open.
  local before after
  before=$(access_rss)
  python3 - "$dir/access.sock" >"$dir/output" <<'END' & local sender=$!
import socket, sys, time
sockets, refused = [], 0
for _ in range(24):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.settimeout(5)
    head = f"POST /v1/agents/alpha/report HTTP/1.1\r\nHost: x\r\nContent-Length: {60 << 20}\r\n\r\n"
    try:
        s.sendall(head.encode() + b" " * (30 << 20))
        s.settimeout(0.2)
        refused += s.recv(12) == b"HTTP/1.1 503"
    except TimeoutError:
        pass
    except OSError:
        refused += 1
    sockets.append(s)
print(refused, flush=True)
time.sleep(60)
END
  for _ in $(seq 600); do [ -s "$dir/output" ] && break; sleep 0.1; done
  after=$(access_rss)
  echo "24 half-sent reports: $before MiB before, $after MiB after, $(cat "$dir/output") of 24 refused"
  row "access: 24 half-sent reports take less than 256 MiB" yes "$([ $((after - before)) -lt 256 ] && echo yes || echo "no: $((after - before)) MiB")"
  row "access: operators are served at the same time" 200 "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$dir/access.sock" http://localhost/v1/status)"
  kill $sender 2>/dev/null || true
  wait $sender 2>/dev/null || true

  row "access: a valid token is accepted" 200 "$(access_bearer $admin)"
  row "access: an expired token is refused" 401 "$(access_bearer $old)"
  row "access: … with its date" named "$(names 'expired on 2001-01-01')"
  "$terrace" status --controller "unix:$dir/access.sock" >"$dir/output" 2>&1 || true
  row "access: … and is a problem" named "$(names 'alice')"

  # Rotation: both secrets, then the new one alone.
  printf 'admin root %s\nadmin root %s\nagent alpha %s\n' $admin new-$admin $agent >"$dir/access-tokens"
  row "access: a second secret of a token is accepted" done "$(outcome "$terrace" reload --controller "unix:$dir/access.sock")"
  row "access: old and new secret are valid" "200 200" "$(access_bearer $admin) $(access_bearer new-$admin)"

  # The page: a session instead of the token.
  local jar=$dir/access-jar
  row "access: the form signs in" 303 "$(access_get /sign-in -c "$jar" --data "token=new-$admin")"
  row "access: the cookie does not contain the token" yes "$(grep -q __Host-terrace "$jar" && ! grep -q "$admin" "$jar" && echo yes || echo no)"
  row "access: the session sees the page" 200 "$(access_get / -b "$jar")"
  row "access: a request from another site is rejected" 403 "$(access_get /v1/pause -b "$jar" -H 'X-Terrace: 1' -H 'Origin: https://evil.example' --data '{}')"
  printf 'admin root %s\nagent alpha %s\n' $admin $agent >"$dir/access-tokens"
  "$terrace" reload --controller "unix:$dir/access.sock" >/dev/null 2>&1
  row "access: the session ends with its token" 401 "$(access_get / -b "$jar")"

  # Guesses: refused, then slowed down; log and audit name the address and no secret.
  # One process sends them all: they come faster than an address's allowance grows.
  local guesses
  guesses=$(curl -sk -o "$dir/output" -w '%{http_code} ' -H "Authorization: Bearer guess-0123456789abcdef" \
    "https://127.0.0.1:$access_port/v1/status?guess=[1-300]")
  row "access: guesses are refused" yes "$(grep -q 401 <<<"$guesses" && echo yes || echo no)"
  row "access: … and rate-limited" yes "$(grep -q 429 <<<"$guesses" && echo yes || echo no)"
  curl -s --unix-socket "$dir/access.sock" http://localhost/metrics >"$dir/output"
  row "access: … counted" named "$(names 'terrace_refused_total{reason="unknown token"}')"
  cp "$dir/access.log" "$dir/output"
  row "access: … logged by address" named "$(names '127.0.0.1')"
  row "access: … without the secret" "not named" "$(names 'guess-')"

  # Files that others can read.
  chmod 640 "$dir/access-tokens"
  row "access: a token file of mode 640 is refused" refused "$(outcome "$terrace" reload --controller "unix:$dir/access.sock")"
  row "access: … with the repair command" named "$(names "chmod 600 $dir/access-tokens")"
  chmod 600 "$dir/access-tokens"
  chmod 644 "$dir/access-state/controller.key"
  row "access: a key of mode 644 is refused" refused "$(outcome "$terrace" reload --controller "unix:$dir/access.sock")"
  row "access: … with the repair command" named "$(names "chmod 600 $dir/access-state/controller.key")"
  stop

  # Names.
  row "access: a direction mark in a tier's name is refused" refused "$(sed "s/\"fast\"/\"fa\\\\u202Est\"/" "$dir/access.toml" >"$dir/access-name.toml"; outcome "$terrace" config check "$dir/access-name.toml")"
  row "access: … and named" named "$(names '\u{202e}')"
  mkdir "$dir/access-files"
  "$terrace" tier add fast --dir "$dir/access-files" --size 64M --array "$dir/access-array" >/dev/null
  row "access: a control character in a volume's name is refused" refused "$(outcome "$terrace" volume create "$(printf 'a\033[31mb')" --size 16M --tier fast --array "$dir/access-array")"
}
if access_needs; then access_cases; fi
