//! Goal: Prometheus gets what the program has written, over HTTP and in a file, and nobody else
//! on the net does. Method: `pmm-writer`, and the page read as a client reads it; `promtool check
//! metrics` looks at it where it is installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Load, output, pmmon, wait_for, works};

fn get(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_page_is_served() {
    if !works("watch") {
        return;
    }
    let mut load = Load::new(&[
        "--size", "2M", "--total", "64T", "--access", "8", "--rate", "64M",
    ]);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("page");
    let pid = load.child.id().to_string();
    let mut command = pmmon(&["export", "--listen", "127.0.0.1:0", "--pid", &pid]);
    command.args(["--calls", "--media"]);
    command.args(["--per-thread", "--interval", "0.2", "--as-pm"]);
    command.arg(load.file()).arg("--output").arg(&file);
    let mut export = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(export.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let (_, address) = line.trim().split_once("http://").unwrap();
    let address = address.trim_end_matches("/metrics");
    load.go();
    wait_for(&file, "size=\"8\"");
    let page = get(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    let series = format!("pmmon_written_bytes_total{{pid=\"{pid}\",command=\"pmm-writer\",tid=");
    assert!(body.contains(&series), "{body}");
    assert!(
        body.contains("pmmon_backend_up{backend=\"watch\"} 1\n"),
        "{body}"
    );
    assert!(
        body.contains("pmmon_backend_up{backend=\"engine\"} 1\n"),
        "{body}"
    );
    assert!(
        body.contains("way=\"call\"") && body.contains("way=\"mapped\""),
        "both ways: {body}"
    );
    let mapped_reads =
        |line: &str| line.starts_with("pmmon_read_bytes_total") && line.contains("way=\"mapped\"");
    assert!(
        !body.lines().any(mapped_reads),
        "loads are not measured: {body}"
    );
    assert!(get(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(address, "PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    check(body);
    kill_process(Pid::from_child(&export), Signal::TERM).unwrap();
    assert!(export.wait().unwrap().success());
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "the page alone"
    );
}

/// Prometheus' own opinion.
fn check(body: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: promtool is not installed (prometheus)");
        return;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(body.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{body}");
}

#[test]
fn the_net_is_not_served() {
    let run = output(&["export", "--backend", "clock", "--listen", "0.0.0.0:0"]);
    assert!(!run.status.success());
    let says = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(says.contains("take 127.0.0.1"), "{says}");
    assert_eq!(output(&["export"]).status.code(), Some(2));
}
