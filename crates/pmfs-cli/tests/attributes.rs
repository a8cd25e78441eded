//! `pmfs put` and `pmfs get` keep extended attributes and ACLs.

mod bench;

use std::fs;
use std::path::Path;
use std::process::Command;

use bench::{Bench, text};

fn tool(name: &str, arguments: &[&str], at: &Path) -> Option<String> {
    let output = Command::new(name)
        .args(arguments)
        .current_dir(at)
        .output()
        .ok()?;
    output.status.success().then(|| text(&output.stdout))
}

#[test]
fn attributes_and_acls_go_in_and_come_out() {
    let bench = Bench::pool();
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("dir/file"), "text").unwrap();
    let set = [
        tool(
            "setfattr",
            &["-n", "user.a", "-v", "one", "dir/file"],
            &tree,
        ),
        tool("setfattr", &["-n", "user.b", "-v", "two", "dir"], &tree),
        tool("setfacl", &["-m", "u:1234:rw,g:99:r", "dir/file"], &tree),
        tool("setfacl", &["-d", "-m", "u:1234:rwx", "dir"], &tree),
    ];
    if set.iter().any(Option::is_none) {
        println!("skipped: no attributes on this tmpfs, or no setfattr and setfacl");
        return;
    }
    let shown = |at: &Path| {
        let attributes = tool("getfattr", &["-R", "-d", "-m", "-", "."], at);
        let acls = tool("getfacl", &["-R", "-n", "."], at);
        (attributes.expect("getfattr"), acls.expect("getfacl"))
    };
    let before = shown(&tree);
    assert!(before.0.contains("user.a=\"one\"") && before.1.contains("user:1234:rw-"));
    bench.ok(&["put", "-r", "pool", "tree", "/kept"]);
    bench.ok(&["get", "-r", "pool", "/kept", "back"]);
    assert_eq!(shown(&bench.path("back")), before);
}
