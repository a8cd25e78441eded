//! `pmfs run` with programs that mean no good, or that do what few others do: descriptors,
//! children, bad pointers, signals, threads that die, and ways round the library.
//!
//! Method: each program is in C (one in C++), and checks what POSIX and Linux promise.
//! It runs on a plain directory first, which shows that what it expects is so, and then
//! under `pmfs run`, where it has to say the same. Afterwards the pool has to be sound.

#[path = "../bench/mod.rs"]
mod bench;
mod beneath;
mod faces;
mod full;
mod heap;
mod large_pages;
mod patching;
mod program;
mod started;
mod stray;
mod stuck;

use std::path::Path;

use program::{Rights, Run, apart, both, both_apart, both_as_nobody, both_with};

macro_rules! tests {
    ($($name:ident: $source:literal $argument:literal;)*) => {
        $(#[test]
        fn $name() {
            both($source, &[$argument]);
        }
        )*
    };
}

tests! {
    descriptors_and_their_duplicates: "descriptors.c" "table";
    offsets_are_shared: "descriptors.c" "offsets";
    files_without_a_name: "descriptors.c" "unnamed";
    copies_within_the_kernel: "descriptors.c" "copies";
    open_files_by_names_of_descriptors: "descriptors.c" "names";
    files_that_have_lost_their_names: "descriptors.c" "gone";
    as_many_as_the_limit_allows: "descriptors.c" "limit";
    numbers_are_the_lowest: "numbers.c" "all";
    spawned_from_a_busy_program: "children.c" "spawn";
    a_child_of_vfork: "children.c" "vfork";
    a_child_with_a_stack_of_its_own: "children.c" "clone";
    a_childs_first_call: "guests.c" "first";
    locks_of_a_child_of_vfork: "guests.c" "locks";
    what_a_child_of_vfork_sets: "guests.c" "apart";
    a_child_with_our_descriptors: "guests.c" "tables";
    children_that_share_one_thing: "guests.c" "others";
    pointers_that_lead_nowhere: "pointers.c" "all";
    each_pointer_of_each_call: "table.c" "all";
    signals_end_waits_for_locks: "signals.c" "waits";
    handlers_in_the_middle_of_calls: "signals.c" "storm";
    small_stacks_in_a_storm: "signals.c" "crowd";
    faults_of_the_program_itself: "signals.c" "faults";
    alternate_and_small_stacks: "signals.c" "stacks";
    stacks_that_grow: "growing.c" "all";
    threads_that_are_cancelled: "cancelled.c" "all";
    mapped_files: "mappings.c" "all";
    mapped_holes: "holes.c" "all";
    rarer_calls_on_addresses: "addresses.c" "all";
    buffers_that_are_not_there: "buffers.c" "all";
    memory_that_is_locked: "locked.c" "all";
    directories_deeper_than_a_path: "deep.c" "all";
    names_that_are_replaced: "replaced.c" "all";
    ways_round_the_library: "escapes.c" "ways";
    system_calls_of_its_own: "escapes.c" "raw";
    forks_in_the_middle_of_calls: "escapes.c" "forks";
    control_blocks_that_go_round: "aio.c" "all";
    files_no_larger_than_allowed: "limits.c" "size";
    set_id_bits_do_not_come_back: "modes.c" "all";
    a_daemon_on_its_own: "daemon.c" "all";
    exceptions_that_pass_calls: "exceptions.cc" "all";
}

#[test]
fn a_daemon_that_closes_all_keeps_its_mount() {
    let Some(run) = Run::new() else { return };
    let program = run.build("late.c", &[]);
    assert_eq!(run.inside(&program, &["all"]).code, Some(0));
    let since = std::time::Instant::now();
    while run.copied_out("late").is_empty() && since.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(run.copied_out("late"), "mounted", "{}", run.log());
}

/// The same programs where there is no mount.
macro_rules! mountless {
    ($($name:ident: $source:literal $argument:literal;)*) => {
        mod mountless {
            $(#[test]
            fn $name() {
                super::both_apart($source, $argument);
            })*
        }
    };
}

mountless! {
    descriptors_and_their_duplicates: "descriptors.c" "table";
    offsets_are_shared: "descriptors.c" "offsets";
    files_without_a_name: "descriptors.c" "unnamed";
    copies_within_the_kernel: "descriptors.c" "copies";
    open_files_by_names_of_descriptors: "descriptors.c" "names";
    files_that_have_lost_their_names: "descriptors.c" "gone";
    numbers_are_the_lowest: "numbers.c" "all";
    spawned_from_a_busy_program: "children.c" "spawn";
    a_child_of_vfork: "children.c" "vfork";
    a_child_with_a_stack_of_its_own: "children.c" "clone";
    a_childs_first_call: "guests.c" "first";
    locks_of_a_child_of_vfork: "guests.c" "locks";
    what_a_child_of_vfork_sets: "guests.c" "apart";
    a_child_with_our_descriptors: "guests.c" "tables";
    pointers_that_lead_nowhere: "pointers.c" "all";
    signals_end_waits_for_locks: "signals.c" "waits";
    handlers_in_the_middle_of_calls: "signals.c" "storm";
    faults_of_the_program_itself: "signals.c" "faults";
    stacks_that_grow: "growing.c" "all";
    threads_that_are_cancelled: "cancelled.c" "all";
    mapped_files: "mappings.c" "all";
    mapped_holes: "holes.c" "all";
    rarer_calls_on_addresses: "addresses.c" "all";
    buffers_that_are_not_there: "buffers.c" "all";
    memory_that_is_locked: "locked.c" "all";
    directories_deeper_than_a_path: "deep.c" "all";
    names_that_are_replaced: "replaced.c" "all";
    ways_round_the_library: "escapes.c" "ways";
    forks_in_the_middle_of_calls: "escapes.c" "forks";
    files_no_larger_than_allowed: "limits.c" "size";
    exceptions_that_pass_calls: "exceptions.cc" "all";
    each_pointer_of_each_call: "table.c" "all";
    small_stacks_in_a_storm: "signals.c" "crowd";
    alternate_and_small_stacks: "signals.c" "stacks";
    streams_of_a_dynamic_program: "strangers.c" "streams";
    files_of_a_dynamic_program: "strangers.c" "files";
    a_dynamic_program_in_the_pool: "strangers.c" "pool";
    directories_and_ways: "apart.c" "directories";
    programs_in_the_pool: "apart.c" "programs";
}

#[test]
fn what_needs_a_mount_is_refused() {
    let lines = [
        "without a mount: --no-mount",
        "can't be sent to another process",
        "can't be given to a program that can't load the library",
        "a FIFO or a device in the pool",
        "can't be the root",
        "can't be filtered",
        "a socket can't have a name",
        "\"sent\":1,",
        "\"sockets\":3,",
        "\"strangers\":2,",
        "\"roots\":2,",
        "\"parts\":2,",
    ];
    apart("apart.c", "refused", &lines);
}

#[test]
fn more_processes_than_there_is_room_for() {
    apart("apart.c", "crowd", &["nothing serves this process"]);
}

/// The ways in which a program can be that the library is not loaded into; and one that it is
/// loaded into, behind another.
macro_rules! strangers {
    ($($name:ident: $how:literal $source:literal $argument:literal;)*) => {
        $(#[test]
        fn $name() {
            both_with($source, $argument, $how);
        })*
    };
}

strangers! {
    streams_of_a_static_program: "static" "strangers.c" "streams";
    files_of_a_static_program: "static" "strangers.c" "files";
    a_static_program_in_the_pool: "static" "strangers.c" "pool";
    a_static_program_of_another_user: "static" "strangers.c" "users";
    streams_of_a_musl_program: "musl" "strangers.c" "streams";
    files_of_a_musl_program: "musl" "strangers.c" "files";
    streams_of_a_sanitized_program: "asan" "strangers.c" "streams";
    files_of_a_sanitized_program: "asan" "strangers.c" "files";
    streams_of_a_go_program: "go" "strangers.c" "streams";
    files_of_a_go_program: "go" "strangers.c" "files";
    streams_of_a_dynamic_program: "dynamic" "strangers.c" "streams";
    files_of_a_dynamic_program: "dynamic" "strangers.c" "files";
    a_dynamic_program_in_the_pool: "dynamic" "strangers.c" "pool";
    a_dynamic_program_of_another_user: "dynamic" "strangers.c" "users";
    a_static_program_with_capabilities: "static" "strangers.c" "capabilities";
    a_dynamic_program_with_capabilities: "dynamic" "strangers.c" "capabilities";
    paths_given_up_by_landlock: "static" "sandbox.c" "landlock";
    users_that_come_and_go: "static" "sandbox.c" "storm";
    another_root_and_other_mounts: "static" "sandbox.c" "roots";
    filters_of_system_calls: "static" "sandbox.c" "filters";
    descriptors_sent_to_others: "static" "sandbox.c" "sent";
    another_user_with_busy_threads: "static" "sandbox.c" "users";
    a_thread_that_is_another_user: "static" "sandbox.c" "threads";
}

/// Calls whose arguments are numbers alone; and those that are refused whatever their
/// pointers are (docs/SEMANTICS.md).
const WITHOUT_POINTERS: &[&str] = &[
    "close",
    "lseek",
    "dup",
    "dup2",
    "dup3",
    "close_range",
    "flock",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "ftruncate",
    "fallocate",
    "fadvise64",
    "readahead",
    "fchmod",
    "fchown",
    "fchdir",
    "umask",
    "unshare",
    "setns",
    "fork",
    "vfork",
    "clone",
    "exit_group",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setfsuid",
    "setfsgid",
    "landlock_restrict_self",
    "getdents",
    "io_destroy",
    "io_uring_setup",
    "splice",
    "tee",
    "kcmp",
    "landlock_add_rule",
    "mlockall",
];

/// The library looks at what `table.c` has bad pointers for: a call that is added there is tried
/// here.
#[test]
fn no_call_of_the_table_is_left_out() {
    let calls = include_str!("../../../pmfs-shim/src/call/class.rs");
    let tried = include_str!("table.c");
    let (_, calls) = calls
        .split_once("const DESCRIPTOR_CALLS")
        .expect("its lists of what is looked at");
    let mut count = 0;
    for word in calls.split([' ', '\n', ',', '[', ']']) {
        let Some(name) = word.strip_prefix("SYS_") else {
            continue;
        };
        let is_tried =
            tried.contains(&format!("ROW({name},")) || tried.contains(&format!("APART({name},"));
        assert_ne!(is_tried, WITHOUT_POINTERS.contains(&name), "{name}");
        count += 1;
    }
    assert!(count > 100, "{count} calls");
}

/// A user's program runs as root: root may not even look below somebody else's mount, but
/// keeps what was open.
#[test]
fn a_set_uid_program_of_an_ordinary_user() {
    both_as_nobody("static", Rights::SetUid);
    both_as_nobody("dynamic", Rights::SetUid);
}

#[test]
fn capabilities_of_a_program_of_an_ordinary_user() {
    both_as_nobody("static", Rights::Capability);
    both_as_nobody("dynamic", Rights::Capability);
}

/// Shared mappings whose stores reach the file with msync, or not at all: with a mount and without.
#[test]
fn stores_that_wait_for_msync() {
    let ways: [&[&str]; 2] = [&["--atomic-msync", "--no-mount"], &["--atomic-msync"]];
    for options in &ways[..1 + usize::from(bench::can_mount())] {
        let run = Run::unmounted();
        let program = run.build("atomic.c", &[]);
        let said = run.below_run(options, &program, &["40"]);
        let log = run.log();
        assert_eq!(said.code, Some(0), "{}\n{log}", said.text);
        assert!(!log.contains("lost"), "{log}");
        assert_eq!(run.copied_out("left").trim_end_matches('\0'), "L");
        run.check();
    }
}

/// Offsets are shared, and what is known is forgotten. A plain directory is not tried: Linux locks
/// no offset for these copies.
#[test]
fn copies_by_shared_offsets() {
    let ways: [&[&str]; 2] = [&["--no-mount"], &[]];
    for options in &ways[..1 + usize::from(bench::can_mount())] {
        let run = Run::unmounted();
        let program = run.build("copies.c", &["-pthread"]);
        let said = run.below_run(options, &program, &["all"]);
        assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
        run.check();
    }
}

/// Goal: files share blocks on every face, and what cannot be shared is refused as Linux does.
#[test]
fn clones_of_files() {
    /// A copy that takes next to no space.
    const COPY: &str = r#"cd "$1" && head -c 3000000 /dev/urandom > one && before=$(stat -f -c %f .) &&
        cp one two && test $((before - $(stat -f -c %f .))) -lt 100 && cmp one two &&
        printf x | dd of=one conv=notrunc status=none && ! cmp -s one two"#;
    const REFLINK: &str = r#" && cp --reflink=always -a two three && cmp two three && rm two &&
        printf x >> three && cp --reflink=always three two && cmp two three"#;
    let ways: [&[&str]; 2] = [&["--no-mount"], &[]];
    let can_mount = bench::can_mount();
    for options in &ways[..1 + usize::from(can_mount)] {
        let run = Run::unmounted();
        let program = run.build("clones.c", &[]);
        let said = run.below_run(options, &program, &["all"]);
        assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
        run.check();
        let script = format!("{COPY}{REFLINK}");
        let said = run.below_run(options, Path::new("/bin/sh"), &["-c", &script, "sh"]);
        assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
        run.check();
    }
    if can_mount {
        let mut run = Run::unmounted();
        let said = run.mounted(Path::new("/bin/sh"), &["-c", COPY, "sh"]);
        assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
        run.check();
    }
}

/// A count of `--stats`.
fn counted(said: &str, name: &str) -> u64 {
    let counted = said.split(&format!("\"{name}\":")).nth(1);
    let counted = counted.and_then(|text| text.split([',', '}']).next());
    counted.expect("a count").trim().parse().expect("a number")
}

/// The count is of all threads, whichever of them ends the process.
#[test]
fn barriers_are_counted() {
    let Some(run) = Run::new() else { return };
    let program = run.build("counted.c", &["-pthread"]);
    let said = run.below_run(&["--stats", "--json"], &program, &[]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    let barriers = counted(&said.text, "barriers");
    // Each write of a block waits twice or more; so it was: none of them.
    assert!((400..2000).contains(&barriers), "{}", said.text);
}

/// The mount answers a program's first look at a name; who asks more has the pool itself.
#[test]
fn who_looks_once_does_not_attach() {
    let Some(run) = Run::new() else { return };
    // `[` is the shell's own: all of it is one process's.
    let script = r#"
        has_pool() { grep -qF "$0" /proc/$$/maps; }
        [ -d "$1" ] || exit 1
        has_pool && exit 2
        [ -e "$1/not there" ] && exit 3
        has_pool || exit 4
        [ -d "$1" ]"#;
    let pool = run.pool();
    let pool = pool.to_str().expect("it is UTF-8");
    let said = run.below_run(&[], Path::new("/bin/sh"), &["-c", script, pool]);
    assert_eq!(said.code, Some(0), "{}", said.text);
}

/// msync of a large mapping costs what was stored, where the kernel notes that; else all of it.
#[test]
fn msync_flushes_what_was_stored() {
    const LINES_OF_A_PAGE: u64 = 64;
    const PAGES: u64 = 2048;
    let Some(run) = Run::new() else { return };
    let program = run.build("synced.c", &[]);
    let lines = |rounds: u64| {
        let options = ["-o", "flush=always", "--stats", "--json"];
        let said = run.below_run(&options, &program, &[&rounds.to_string()]);
        assert_eq!(said.code, Some(0), "{}", said.text);
        counted(&said.text, "lines_flushed")
    };
    let (few, many) = (lines(10), lines(110));
    let pages = match pmem::watch::Watch::new() {
        Ok(_) => 3,
        // Both msyncs of a round.
        Err(_) => 2 * PAGES,
    };
    let wanted = 100 * pages * LINES_OF_A_PAGE;
    // The program's other stores are not counted to the line.
    let near = wanted - 64..=wanted + 64;
    assert!(near.contains(&(many - few)), "{few} {many}");
}

/// An end of `pmfs run` is meant for the program: it is told, and the totals are said all the same.
#[test]
fn an_end_that_is_asked_for_is_the_programs() {
    let Some(run) = Run::new() else { return };
    let script = "trap 'exit 7' TERM; kill -TERM $PPID; while :; do sleep 0.02; done";
    let said = run.below_run(
        &["--stats", "--json"],
        Path::new("/bin/sh"),
        &["-c", script],
    );
    assert_eq!(said.code, Some(7), "{}", said.text);
    assert!(counted(&said.text, "processes") > 0, "{}", said.text);
}

/// Nobody waits for a grandchild that ends a moment after the program: the mount is
/// gone all the same when the command returns.
#[test]
fn a_grandchild_on_its_way_out_is_waited_for() {
    let Some(run) = Run::new() else { return };
    let said = run.below_run(&[], Path::new("/bin/sh"), &["-c", "sleep 0.05 &"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    run.check();
}
