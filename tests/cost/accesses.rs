//! Accesses of one kind in a row, for a count of instructions: `tests/emulation-cost.sh` builds it
//! with the `pmem` of a tree, and runs it.
//!
//!     accesses KIND COUNT

use std::hint::black_box;

use pmem::Pmem;

const LEN: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Offsets that leave no cache line to the next access.
fn off(step: u64) -> u64 {
    step * PAGE % LEN
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count] = &words[..] else {
        panic!("accesses KIND COUNT");
    };
    let count: u64 = count.parse().expect("a number");
    let mem = Pmem::private(LEN);
    let mut buffer = vec![7; PAGE as usize];
    let work: &mut dyn FnMut(u64) = match kind.as_str() {
        "load" => &mut |step| _ = black_box(mem.load(off(step))),
        "read" => &mut |step| _ = black_box(mem.read::<8>(off(step))),
        "copy-64" => &mut |step| mem.copy_out(off(step), &mut buffer[..64]).expect("memory"),
        "copy-4096" => &mut |step| mem.copy_out(off(step), &mut buffer).expect("memory"),
        "store" => &mut |step| mem.store(off(step), step),
        "stream-64" => &mut |step| mem.write_nt(off(step), &buffer[..64]).expect("memory"),
        "stream-4096" => &mut |step| mem.write_nt(off(step), &buffer).expect("memory"),
        "stream-100" => &mut |step| mem.write_nt(off(step) + 30, &buffer[..100]).expect("memory"),
        "zero-4096" => &mut |step| mem.zero_nt(off(step), PAGE),
        "flush-64" => &mut |step| {
            mem.write_bytes(off(step), &buffer[..64]);
            mem.flush(off(step), 64);
        },
        "flush-1024" => &mut |step| {
            mem.write_bytes(off(step), &buffer[..1024]);
            mem.flush(off(step), 1024);
        },
        "fence" => &mut |_| mem.fence(),
        _ => panic!("no such accesses: {kind}"),
    };
    for step in 0..count {
        work(black_box(step));
    }
}
