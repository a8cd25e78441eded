//! The program under the names by which mount(8), umount(8), fsck(8) and mkfs(8) look for it.
//!
//! Goal: an fstab line and the usual commands do what they do for any file system.
//! Method: a mount namespace in which /sbin holds links to the program, /run is empty
//! and another fstab is read; each script runs there and the machine sees nothing of it.

mod bench;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::{Bench, text};

/// The directory that mount(8) searches is the machine's, with the links beside what is there.
const NAMESPACE: &str = r#"
    mkdir real sbin && mount --bind /usr/sbin real && ln -s "$PWD"/real/* sbin/
    for name in mount.pmfs umount.pmfs mount.fuse.pmfs fsck.pmfs mkfs.pmfs; do
        ln -s "$PMFS" sbin/$name
    done
    mount --bind sbin /usr/sbin
    [ /sbin -ef /usr/sbin ] || mount --bind sbin /sbin
    mount -t tmpfs tmpfs /run
    if [ "$(stat -c %a /dev/fuse)" != 666 ]; then
        mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse
    fi
    pool=$PWD/pool mnt=$PWD/mnt
    export LIBMOUNT_FSTAB=$PWD/fstab FSTAB_FILE=$PWD/fstab
    kind() { findmnt -no FSTYPE,SOURCE "$mnt" || echo none; }
    # Mounts and daemons end with the script, however it ends.
    trap 'umount "$mnt" 2>/dev/null || umount -l "$mnt" 2>/dev/null || true' EXIT
"#;

fn run(bench: &Bench, script: &str) -> Output {
    Command::new("unshare")
        .args(["-m", "sh", "-euc", &format!("{NAMESPACE}\n{script}")])
        .env("PMFS", env!("CARGO_BIN_EXE_pmfs"))
        .current_dir(bench.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The script has to end well and print this.
fn prints(script: &str, expected: &str) {
    if !bench::can_mount() || !Path::new("/usr/bin/unshare").exists() {
        return;
    }
    let bench = Bench::empty();
    let output = run(&bench, script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let out = out.replace(bench.path("").to_str().unwrap(), "");
    assert_eq!(out.trim(), expected.trim(), "{err}");
}

#[test]
fn mount_t_pmfs() {
    prints(
        r#"
        mkfs -t pmfs "$pool" 65536 >/dev/null
        mount -t pmfs "$pool" "$mnt" -o noatime
        kind
        echo hello >"$mnt/a"
        umount "$mnt"
        kind
        # umount(8) does not wait for the daemon; fsck does.
        fsck -t pmfs -a "$pool" >/dev/null
        mount.pmfs "$pool" "$mnt" && cat "$mnt/a" && umount.pmfs "$mnt"
        mount -t fuse.pmfs "$pool" "$mnt" && umount -l "$mnt"
        # Time and again: each finds the pool closed.
        for again in 1 2 3 4 5 6 7 8; do
            mount -t pmfs "$pool" "$mnt" && umount "$mnt"
            mkfs -t pmfs -f "$pool" >/dev/null
        done
        "#,
        "fuse.pmfs pool\nnone\nhello",
    );
}

#[test]
fn a_line_in_fstab() {
    prints(
        r#"
        mkfs.pmfs "$pool" 64M >/dev/null
        echo "$pool $mnt pmfs defaults,noauto,nofail,x-systemd.automount 0 2" >fstab
        mount "$mnt"
        kind
        echo hello >"$mnt/a"
        mount -o remount,ro "$mnt"
        touch "$mnt/b" 2>/dev/null || echo read-only
        mount -o remount,rw "$mnt"
        touch "$mnt/b"
        umount "$mnt"
        fsck -A -t pmfs >/dev/null
        mount -f "$mnt"
        kind
        sed -i s/noauto,// fstab
        mount -a && mount -a
        kind
        ls "$mnt"
        "#,
        "fuse.pmfs pool\nread-only\nnone\nfuse.pmfs pool\na\nb",
    );
}

/// `user` in fstab: mount(8) lets go of root before it calls us.
#[test]
fn a_line_for_users() {
    prints(
        r#"
        cp -L "$PMFS" copy && chmod 755 . copy && ln -sf "$PWD/copy" sbin/mount.pmfs
        as() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
        chown nobody . "$mnt"
        as ./copy mkfs -s 64M "$pool" >/dev/null
        # LIBMOUNT_FSTAB is not for programs that are set-user-id.
        [ -e /etc/fstab ] || exit 0
        touch fstab && mount --bind fstab /etc/fstab
        echo "$pool $mnt pmfs noauto,user 0 0" >fstab
        as mount "$mnt"
        kind
        as touch "$mnt/a"
        as umount "$mnt"
        kind
        "#,
        "fuse.pmfs pool\nnone",
    );
}

#[test]
fn exit_codes_are_the_callers() {
    prints(
        r#"
        code() { "$@" >out 2>&1 && echo 0 || echo $?; }
        "$PMFS" mkfs -s 64M "$pool" >/dev/null
        code mount -t pmfs "$pool" "$PWD/absent"      # 32: mount failed
        code mount -t pmfs -o nonsense "$pool" "$mnt"
        code mount -s -t pmfs -o nonsense "$pool" "$mnt"
        code mount.pmfs "$pool" -N /proc/1/ns/mnt     # 1: wrong call
        (cd "$mnt" && code umount "$mnt")
        code umount "$mnt"
        code fsck.pmfs "$PWD/absent"                  # 8: could not be checked
        code fsck.pmfs --nonsense                     # 16: wrong call
        code mkfs.pmfs "$pool"
        code mkfs.pmfs -f "$pool"
        "#,
        "32\n32\n0\n1\n32\n0\n8\n16\n1\n0",
    );
}

#[test]
fn nothing_is_said_unless_asked_for() {
    prints(
        r#"
        "$PMFS" mkfs -s 64M "$pool" >/dev/null
        mount -t pmfs "$pool" "$mnt" 2>&1
        umount "$mnt" 2>&1
        mount -v -t pmfs "$pool" "$mnt" | grep -c '^mounted'
        "#,
        "1",
    );
}

/// Goal: an option that was typed holds, though mount(8) leaves out what are its own
/// defaults. Method: set-id bits and devices asked for, not asked for, refused, and of
/// a pool that is not root's.
#[test]
fn suid_and_dev_are_the_callers_defaults() {
    prints(
        r#"
        "$PMFS" mkfs -s 64M "$pool" >/dev/null
        flags() { findmnt -no OPTIONS "$mnt" | tr , '\n' | grep -E '^no(suid|dev|exec)$' | sort | paste -sd ' ' || true; }
        for options in suid,dev defaults nosuid nodev,noexec; do
            mount -t pmfs -o "$options" "$pool" "$mnt"
            echo "$options: $(flags)"
            umount "$mnt"
        done
        "$PMFS" mount "$pool" "$mnt" >/dev/null
        echo "pmfs mount: $(flags)"
        umount "$mnt"
        chown nobody "$pool"
        mount -t pmfs "$pool" "$mnt"
        echo "not root's: $(flags)"
        umount "$mnt"
        "#,
        "suid,dev: \ndefaults: \nnosuid: nosuid\nnodev,noexec: nodev noexec\npmfs mount: nodev nosuid\n\
         not root's: nodev nosuid",
    );
}
