//! Goal: ACLs, umask, attribute namespaces and privileges are on the mount what they
//! are on tmpfs. Method: the same scripts run in both places, as root and as an
//! ordinary user, and must say the same.

mod bench;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bench::{Bench, text};

const USER: u32 = 65534;
const GROUP: u32 = 65534;

/// A mount and a directory of tmpfs beside it. `None`, and a word on stderr, where
/// something is missing.
fn bench() -> Option<Bench> {
    let there = |program: &str| {
        let asked = Command::new(program).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    if !["setfacl", "getfacl", "setfattr", "getfattr"]
        .iter()
        .all(|program| there(program))
    {
        eprintln!("skipped: needs the packages acl and attr");
        return None;
    }
    let bench = Bench::mounted(&[])?;
    fs::create_dir(bench.path("peer")).unwrap();
    for path in ["", "mnt", "peer"] {
        fs::set_permissions(bench.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let peer = Command::new("setfacl")
        .args(["-m", "u:1:r"])
        .arg(bench.path("peer"))
        .status();
    if !peer.unwrap().success() {
        eprintln!("skipped: the temporary directory has no ACLs to compare with");
        return None;
    }
    fs::remove_dir(bench.path("peer")).unwrap();
    fs::create_dir(bench.path("peer")).unwrap();
    Some(bench)
}

/// Runs each line by a shell in the directory and collects what it says and answers.
fn said(dir: &Path, script: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (ordinary, command) = match line.strip_prefix("user: ") {
            Some(command) => (true, command),
            None => (false, line),
        };
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(dir)
            .stdin(Stdio::null());
        if ordinary {
            shell.uid(USER).gid(GROUP);
        }
        let output = shell.output().unwrap();
        answers.push(format!(
            "{line}\n{}{}= {:?}",
            text(&output.stdout),
            text(&output.stderr),
            output.status.code()
        ));
    }
    answers
}

/// Both places answer every line alike; the answers.
fn alike(bench: &Bench, script: &str) -> Vec<String> {
    let ours = said(&bench.path("mnt"), script);
    let theirs = said(&bench.path("peer"), script);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "the mount (left) and tmpfs (right) differ");
    }
    ours
}

#[test]
fn acls_are_set_shown_and_taken_away() {
    let Some(bench) = bench() else { return };
    let answers = alike(
        &bench,
        "touch a; chmod 640 a
         setfacl -m u:1000:rwx,g:50:r a; getfacl -cn a; stat -c %a a
         chmod 604 a; getfacl -cn a; stat -c %a a
         setfacl -m m::rw a; getfacl -cn a; stat -c %a a
         setfacl -x u:1000 a; getfacl -cn a
         setfacl -b a; getfacl -cn a; stat -c %a a; getfattr -m - a
         setfacl -m u::rw,g::r,o::- a; stat -c %a a; getfattr -m - a
         setfacl --set u::rwx,u:7:r,g::rx,m::rwx,o::x a; stat -c %a a; getfattr -n system.posix_acl_access -e hex a
         setfattr -x system.posix_acl_access a; stat -c %a a; getfacl -cn a
         setfattr -x system.posix_acl_access a
         mkdir d; setfacl -d -m u:9:rx d; getfacl -cn d; setfacl -k d; getfacl -cn d
         setfacl -d -m u:9:rx a
         ln -s a l; setfacl -P -m u:9:rx l; getfacl -cn a
         setfattr -h -n system.posix_acl_access -v 0x02000000 l
         setfattr -n system.posix_acl_access -v 0x0200 a
         setfattr -n system.posix_acl_access -v 0x03000000 a
         setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff a
         setfattr -n system.posix_acl_access -v 0x02000000 a; echo $?
         setfattr -n system.posix_acl_default -v 0x02000000 a; echo $?
         getfattr -n system.posix_acl_default d
         mkfifo p; setfacl -m u:3:r p; getfacl -cn p; ls -l p | cut -c1-11",
    );
    assert!(
        answers[1].contains("user:1000:rwx") && answers[1].contains("670"),
        "{}",
        answers[1]
    );
}

#[test]
fn default_acls_and_umask() {
    let Some(bench) = bench() else { return };
    let answers = alike(
        &bench,
        "mkdir plain; chmod 777 plain; cd plain; umask 027; touch f; mkdir d; mkfifo p; stat -c '%n %a' *
         user: cd plain; umask 077; touch mine; mkdir mined; mknod minep p; stat -c '%n %a' mine*
         mkdir d; chmod 777 d; setfacl -d -m u:1000:rwx,g:50:rx,o:r d
         cd d; umask 077; touch f; mkdir s; mkfifo p; ln -s f l; stat -c '%n %a' *; getfacl -cn f s p
         cd d/s; umask 0; touch f; mkdir s; getfacl -cn f s; getfacl -cn s/.
         cd d; cp f f2; install -m 600 f f3; getfacl -cn f2 f3
         user: cd d; touch mine; getfacl -cn mine; (umask 0; mkdir mined); getfacl -cn mined
         setfacl -k d; cd d; umask 037; touch late; stat -c %a late; getfattr -m - late
         mkdir e; setfacl -d --set u::rwx,g::r,o::- e; cd e; umask 0; touch f; stat -c %a f; getfattr -m - f
         mkdir g; chgrp 50 g; chmod 2777 g; setfacl -d -m u:8:r g; mkdir g/s; touch g/f; stat -c '%a %g' g/s g/f",
    );
    assert!(answers[3].contains("user:1000:rwx"), "{}", answers[3]);
}

#[test]
fn acls_are_enforced_and_owners_alone_set_them() {
    let Some(bench) = bench() else { return };
    let answers = alike(
        &bench,
        "echo secret > a; chmod 600 a; echo other > b; chmod 644 b
         user: cat a
         setfacl -m u:65534:r a
         user: cat a; echo x >> a
         setfacl -m m::- a
         user: cat a
         setfacl -m m::r,g:65534:rw,u:65534:- a
         user: cat a
         user: setfacl -m u:65534:rw b
         user: setfacl -b a
         user: setfattr -x system.posix_acl_access a
         setfacl -m u:65534:- b
         user: cat b
         mkdir d; chmod 700 d; touch d/f; setfacl -m u:65534:x d
         user: ls d; stat -c %a d/f
         touch mine; chown 65534:50 mine; chmod 2770 mine
         user: setfacl -m u:3:r mine; stat -c %a mine; getfacl -cn mine
         chmod 2770 mine; setfacl -m u:4:r mine; stat -c %a mine
         chgrp 65534 mine; chmod 2770 mine
         user: setfacl -m u:5:r mine; stat -c %a mine
         user: chmod 705 mine; getfacl -cn mine",
    );
    assert!(answers[3].contains("secret"), "{}", answers[3]);
    assert!(!answers[5].contains("secret"), "{}", answers[5]);
}

#[test]
fn namespaces_of_attributes() {
    let Some(bench) = bench() else { return };
    // Not by comparison alone: before Linux 6.6 tmpfs has no `user.` attributes.
    let script = "touch a; mkdir d; mkfifo p; ln -s a l
         for n in a d p; do setfattr -n trusted.t -v 1 $n; setfattr -n security.s -v 2 $n; done
         setfattr -h -n trusted.t -v 1 l; getfattr -h -m - -d l
         getfattr -m - a d p | sort
         user: getfattr -m - a d; echo $?
         user: getfattr -n trusted.t a
         user: setfattr -n trusted.u -v 1 a
         setfattr -n foo.bar -v 1 a; setfattr -n system.bar -v 1 a; setfattr -n user -v 1 a
         getfattr -n foo.bar a; getfattr -n system.bar a; setfattr -x foo.bar a
         setfattr -x trusted.none a
         setfattr -x trusted.t a; getfattr -m - a";
    let answers = alike(&bench, script);
    assert!(answers[3].contains("trusted.t"), "{}", answers[3]);
    assert!(!answers[4].contains("trusted.t"), "{}", answers[4]);
    let users = said(
        &bench.path("mnt"),
        "setfattr -n user.u -v 1 a && setfattr -n user.u -v 1 d && getfattr --only-values -n user.u d
         setfattr -n user.u -v 1 p
         setfattr -h -n user.u -v 1 l
         getfattr -n user.u p
         setfattr -n user. -v 1 a",
    );
    assert!(users[0].ends_with("1= Some(0)"), "{}", users[0]);
    for (answer, why) in users[1..].iter().zip([
        "not permitted",
        "not permitted",
        "No such attribute",
        "Invalid argument",
    ]) {
        assert!(answer.contains(why), "{answer}");
    }
}

#[test]
fn privileges_go_with_the_change() {
    let Some(bench) = bench() else { return };
    let capability = "0x0100000200040000000000000000000000000000";
    let script = format!(
        "umask 0; for n in w t c o; do echo text > $n; chmod 6777 $n; setfattr -n security.capability -v {capability} $n; done
         getfattr -m - w t c o
         user: echo more >> w; stat -c %a w; getfattr -m - w
         user: truncate -s 1 t; stat -c %a t; getfattr -m - t
         chown 7 c; stat -c %a c; getfattr -m - c
         echo x >> o; stat -c %a o; getfattr -m - o
         touch n; chmod 2767 n
         user: echo x >> n; stat -c %a n
         touch g; chmod 6777 g
         user: fallocate -l 9000 g; stat -c %a g"
    );
    let answers = alike(&bench, &script);
    assert!(answers[1].contains("security.capability"), "{}", answers[1]);
    assert!(answers[2].contains("\n777\n"), "{}", answers[2]);
}
