#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .ci/release looks whether a tree is ready, and says what it made. What it makes is a stand-in's.
. "${srcdir:-.}/tests/shell-tests"
source=$(cd "${srcdir:-.}" && pwd) || exit 99
if ! command -v git >/dev/null || ! command -v sha256sum >/dev/null; then
    echo "1..0 # SKIP git or sha256sum is not here"
    exit 0
fi
tree=$folder/tree
build=$folder/build
mkdir -p "$tree/debian" "$build" "$folder/keys"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GNUPGHOME="$folder/keys"
printf 'kiln NEWS\n\n1.2.3 (not yet released)\n  * It is better.\n' >"$tree/NEWS"
echo 'kiln (1.2.2-1) unstable; urgency=medium' >"$tree/debian/changelog"
git -C "$tree" init -q

commit() {
    git -C "$tree" add -A &&
        git -C "$tree" -c user.name=tester -c user.email=tester@localhost commit -q -m 'A change'
}

cat >"$folder/make" <<'TEXT'
#!/bin/sh
case $1 in
  check-dist) echo text >kiln-1.2.3.tar.gz ;;
  check-deb) [ ! -e no-packages ] && echo text >"$RELEASE_FOLDER/kiln-tools_1.2.3-1_any.deb" || echo '1..0 # SKIP dh is not here' ;;
esac
echo "$1" >>made
TEXT
chmod +x "$folder/make"

release() {
    (cd "$build" && MAKE="$folder/make" srcdir="$tree" sh "$source/.ci/release" 1.2.3)
}

commit
check "NEWS has to have a date" 1 "NEWS has no entry '1.2.3 (YEAR-MONTH-DAY)'" release
sed -i 's/(not yet released)/(2026-11-26)/' "$tree/NEWS"
check "so has debian/changelog the version" 1 'debian/changelog does not begin with 1.2.3' release
sed -i 's/1.2.2/1.2.3/' "$tree/debian/changelog"
check "all has to be committed" 1 'has changes that are not committed' release
commit
touch "$build/no-packages"
check "packages have to be there" 1 'make check-deb failed, or there was nothing' release
rm "$build/no-packages"
check "without a key nothing is signed" 0 'not signed, as gpg has no secret key here' release
check "sums are right" 0 'kiln-tools_1.2.3-1_any.deb: OK' \
    sh -c "cd '$build/release-1.2.3' && sha256sum -c SHA256SUMS"
check "the interface is described at the end" 0 '^abi$' tail -n 1 "$build/made"
if command -v gpg >/dev/null && chmod 700 "$GNUPGHOME" &&
    gpg --batch --quiet --passphrase '' --quick-gen-key tester@localhost default default never \
        2>/dev/null; then
    check "with one it is" 0 'release: 1.2.3 is in' release
    check "signatures are good" 0 'Good signature from "tester@localhost"' \
        gpg --verify "$build/release-1.2.3/SHA256SUMS.asc"
    gpgconf --kill gpg-agent
fi
git -C "$tree" -c user.name=tester -c user.email=tester@localhost tag v1.2.3
check "a tag is there once" 1 'there is a tag v1.2.3 already' release
finish
