//! Goal: a program of `pmfs run` finds itself as if its caller had started it,
//! whichever way it is started: with the caller's signal mask, ignored signals, limits,
//! umask, priority, descriptors, session, and the alarm that it has set.
//!
//! Method: a caller that has all of these otherwise than usual starts a program that
//! says what it finds, by itself and by `pmfs run`: with a mount that is there, with
//! one that is made, with totals, and without a mount. It has to say the same.

use std::path::Path;

use crate::program::Run;

/// Ways to start `$2` by `$0`, called by `$1 launch $3`.
const WAYS: [(&str, &str, bool); 6] = [
    ("a mount that is made", "RUN", true),
    ("its totals", "RUN --stats", true),
    ("a mount that is there", "MOUNTED", true),
    ("totals of a mount that is there", "MOUNTED --stats", true),
    ("no mount", "RUN --no-mount", false),
    ("totals of no mount", "RUN --no-mount --stats", false),
];

fn said(run: &Run, way: &str, kind: &str) -> String {
    let pool = run.pool();
    let dir = pool.with_file_name("mnt");
    let (dir, pool) = (dir.display(), pool.display());
    let start = match way.split_once(' ').unwrap_or((way, "")) {
        ("", _) => "\"$1\" launch KIND \"$1\" say -".to_owned(),
        ("MOUNTED", more) => format!(
            "\"$0\" mount --quiet {pool} {dir} && \"$1\" launch KIND \"$0\" run {more} --pool {pool} --at {dir} -- \"$1\" say -; code=$?; \"$0\" umount --quiet {dir}; exit $code"
        ),
        (_, more) => {
            format!("\"$1\" launch KIND \"$0\" run {more} --pool {pool} --at {dir} -- \"$1\" say -")
        }
    };
    let program = run.build("started.c", &[]);
    let said = run.in_a_namespace(
        &format!("export GROUP=$$; {}", start.replace("KIND", kind)),
        &program,
        &[],
    );
    assert_eq!(said.code, Some(0), "{way}: {}\n{}", said.text, run.log());
    // Without the totals.
    let lines = said.text.lines().filter(|line| !line.starts_with("pmfs: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn as_its_caller_would_have_started_it() {
    let can_mount = crate::bench::can_mount();
    let run = Run::unmounted();
    for kind in ["plain", "low"] {
        let by_itself = said(&run, "", kind);
        assert!(by_itself.contains("alarm 14"), "{by_itself}");
        for (what, way, needs_mount) in WAYS {
            if can_mount || !needs_mount {
                assert_eq!(said(&run, way, kind), by_itself, "{what}, {kind}");
            }
        }
    }
}

/// A signal sent to the command is the program's: also one that ends it, and one that it has no
/// name for.
#[test]
fn signals_are_the_programs() {
    let run = Run::unmounted();
    let script = r#"
        for name in HUP INT QUIT USR1 USR2 ALRM TERM VTALRM PROF WINCH IO PWR; do
            got=
            trap "got=$name" $name
            kill -$name $PPID
            while [ -z "$got" ]; do sleep 0.01; done
        done
        exit 7"#;
    let options = ["--stats", "--no-mount"];
    let said = run.below_run(&options, Path::new("/bin/bash"), &["-c", script]);
    assert_eq!(said.code, Some(7), "{}", said.text);
    let killed = run.below_run(&options, Path::new("/bin/sh"), &["-c", "kill -INT $$"]);
    assert_eq!(killed.code, None, "{}", killed.text);
    let killed = run.below_run(&options, Path::new("/bin/sh"), &["-c", "kill -TERM $$"]);
    assert_eq!(killed.code, Some(143), "{}", killed.text);
}

/// A script without a first line that says whose it is runs as a shell would run it.
#[test]
fn scripts_that_say_nothing() {
    let run = Run::unmounted();
    let script = run.pool().with_file_name("script");
    std::fs::write(&script, "exit 9\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("its mode");
    for options in [&["--no-mount"][..], &["--no-mount", "--stats"]] {
        let said = run.below_run(options, &script, &[]);
        assert_eq!(said.code, Some(9), "{}", said.text);
    }
}
