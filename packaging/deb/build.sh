#!/bin/sh
# Builds the Debian package: packaging/deb/build.sh [-p PROGRAM] [-o DIR] [-Z COMPRESSION] [VERSION]
#
# Packages PROGRAM, or builds it with the profile `dist` (or PROFILE). Writes DIR/terrace_VERSION_ARCHITECTURE.deb (default:
# target/deb) and prints its path. The default VERSION is that of the program with the revision 1. COMPRESSION is passed to dpkg-deb.
#
# The package is reproducible: times are those of the commit or SOURCE_DATE_EPOCH. Requires dpkg, binutils and gzip. DEBFULLNAME and
# DEBEMAIL set the maintainer.
set -eu
export LC_ALL=C
umask 022

usage() {
  echo "usage: $0 [-p PROGRAM] [-o DIR] [-Z COMPRESSION] [VERSION]" >&2
  exit 2
}
program= out= compression=xz
while getopts p:o:Z: option; do
  case $option in
    p) program=$(realpath "$OPTARG") ;;
    o) mkdir -p "$OPTARG" && out=$(realpath "$OPTARG") ;;
    Z) compression=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || usage

cd "$(dirname "$0")/../.."
if [ -z "$out" ]; then
  out=${CARGO_TARGET_DIR:-$PWD/target}/deb
  mkdir -p "$out"
fi
[ -n "$program" ] || program=$(bench/program.sh cli terrace)

version=${1:-$("$program" --version | cut -d ' ' -f 2)-1}
dpkg --validate-version "$version"
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-Terrace maintainers} <${DEBEMAIL:-maintainers@terrace.invalid}>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root"

# put MODE FILE PATH-IN-THE-PACKAGE
put() {
  install -D -m "$1" "$2" "$root/$3"
}

put 755 "$program" usr/bin/terrace
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/terrace"

for unit in packaging/systemd/*.service; do
  put 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"
done
put 644 packaging/deb/terrace.sysusers usr/lib/sysusers.d/terrace.conf
put 644 packaging/terrace.toml etc/terrace/terrace.toml
put 644 packaging/deb/terrace.default etc/default/terrace
put 644 packaging/deb/needrestart.conf etc/needrestart/conf.d/terrace.conf

# The packaged program generates these files, so they match it.
mkdir -p "$root/usr/share/man/man1"
"$program" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
for shell in bash zsh fish; do
  "$program" completion $shell > "$work/$shell"
done
put 644 "$work/bash" usr/share/bash-completion/completions/terrace
put 644 "$work/zsh" usr/share/zsh/vendor-completions/_terrace
put 644 "$work/fish" usr/share/fish/vendor_completions.d/terrace.fish

doc=usr/share/doc/terrace
put 644 packaging/prometheus/alerts.yml $doc/examples/prometheus/alerts.yml
put 644 packaging/grafana/terrace.json $doc/examples/grafana/terrace.json
put 644 packaging/systemd/machines.conf $doc/examples/systemd/machines.conf
put 644 packaging/terrace.toml $doc/examples/terrace.toml
put 644 CHANGELOG.md $doc/changelog
cat > "$root/$doc/changelog.Debian" <<EOF
terrace ($version) unstable; urgency=medium

  * What has changed is in changelog.gz.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
gzip -9n "$root/$doc/changelog" "$root/$doc/changelog.Debian"
{
  cat <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: terrace

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE-MIT)
License: Expat or Apache-2.0
Comment: The program contains Rust crates under these and other licences that ask for no more than to be named: deny.toml in the sources
 lists the licences, Cargo.lock the crates.

License: Expat
EOF
  # License text without heading and holders; an empty line is a dot.
  sed -n '/^Permission/,$p' LICENSE-MIT | sed 's/^$/./; s/^/ /'
  cat <<EOF

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
EOF
} > "$work/copyright"
put 644 "$work/copyright" $doc/copyright

# Packages of the linked libraries; an unknown library is an error.
needs_version() { # PREFIX: highest version of the required symbols of a library
  readelf -V "$root/usr/bin/terrace" | grep -o "Name: $1_[0-9.]*" | sed 's/.*_//' | sort -uV | tail -n 1
}
depends=
for library in $(readelf -d "$root/usr/bin/terrace" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $library in
    libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|ld-linux*) package="libc6 (>= $(needs_version GLIBC))" ;;
    libgcc_s.so.1) package="libgcc-s1 (>= $(needs_version GCC))" ;;
    libstdc++.so.6) package="libstdc++6 (>= 12)" ;;
    libssl.so.3|libcrypto.so.3) package="libssl3 | libssl3t64" ;;
    *) echo "$0: $program needs $library: add its package to this script" >&2; exit 1 ;;
  esac
  case ", $depends," in
    *", $package,"*) ;;
    *) depends="${depends:+$depends, }$package" ;;
  esac
done

mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do
  install -m 755 "packaging/deb/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find etc -type f | sort | sed 's|^|/|') > "$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
size=$(cd "$root" && find usr etc -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }')
cat > "$root/DEBIAN/control" <<EOF
Package: terrace
Version: $version
Section: admin
Priority: optional
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $size
Depends: ${depends:+$depends, }systemd | systemd-standalone-sysusers | systemd-sysusers
Suggests: bash-completion
Description: storage tiering for virtual disks on several classes of flash
 Terrace serves the disks of virtual machines over NBD and vhost-user from
 tiers of files, block devices and remote exports. It decides on which tier
 each disk belongs, explains the decision, and moves disks under load.
 .
 The package has the program, hardened units for systemd, manual pages and
 completions. The installation starts no service, and an upgrade restarts no
 service that guests use.
EOF
chmod 644 "$root"/DEBIAN/conffiles "$root"/DEBIAN/md5sums "$root"/DEBIAN/control

find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$out/terrace_${version#*:}_$architecture.deb
dpkg-deb --root-owner-group -Z"$compression" --build "$root" "$package" >&2
echo "$package"
