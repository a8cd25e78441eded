//! Goal: a stub does what was overwritten, and the two jumps arrive. Method:
//! hand-assembled instructions, the stub's bytes by hand, or decoded again.

use iced_x86::{Code, Decoder, DecoderOptions};

use super::*;
use crate::header::STUBS_VADDR;

const AT: u64 = 0x2_6000;
const STUB: u64 = STUBS_VADDR as u64;
const SLOT: u64 = STUB.wrapping_add(0x1000);

fn decoded(bytes: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// The stub's instructions for the parts, decoded at the stub's place.
fn stub_of(parts: &[&[u8]], site: usize) -> Vec<Instruction> {
    let range = decoded(&parts.concat(), AT);
    let stub = assemble(&range, site, STUB, SLOT).expect("a stub");
    decoded(&stub.bytes, STUB)
}

#[test]
fn all_bytes_of_a_simple_one() {
    let range = decoded(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05], AT);
    let stub = assemble(&range, 1, STUB, SLOT).expect("a stub");
    let mut expected = vec![0xb8, 39, 0, 0, 0];
    // lea rcx, [rip + 6]: over the jump.
    expected.extend([0x48, 0x8d, 0x0d, 6, 0, 0, 0]);
    // jmp [rip + 0x1000 - 18].
    expected.extend([0xff, 0x25, 0xee, 0x0f, 0, 0]);
    expected.extend([0x0f, 0x05]);
    // jmp to AT + 7 from STUB + 20, 5 long.
    let back = (AT + 7).wrapping_sub(STUB + 25) as u32;
    expected.push(0xe9);
    expected.extend(back.to_le_bytes());
    assert_eq!(stub.bytes, expected);
    assert_eq!(stub.pass, 18);
}

#[test]
fn the_jump_arrives() {
    let bytes = jump(AT, STUB).expect("in reach");
    assert_eq!(decoded(&bytes, AT)[0].near_branch_target(), STUB);
    assert_eq!(jump(0, 0x8000_0005), None);
    assert_eq!(jump(0x8000_0000, 4), None);
    assert!(jump(0, 0x8000_0004).is_some());
}

#[test]
fn addresses_relative_to_rip_stay() {
    // mov rsi, [rip + 0x1234].
    let load = [0x48, 0x8b, 0x35, 0x34, 0x12, 0, 0];
    let stub = stub_of(&[&load, &SYSCALL], 1);
    assert_eq!(stub[0].code(), Code::Mov_r64_rm64);
    assert_eq!(stub[0].ip_rel_memory_address(), AT + 7 + 0x1234);
}

#[test]
fn a_branch_goes_where_it_went() {
    // test eax, eax; js -0x10.
    let stub = stub_of(&[&SYSCALL, &[0x85, 0xc0], &[0x78, 0xf0]], 0);
    let [.., test, js, back] = stub.as_slice() else {
        panic!("too short");
    };
    assert_eq!(test.code(), Code::Test_rm32_r32);
    assert_eq!(js.code(), Code::Js_rel32_64);
    assert_eq!(js.near_branch_target(), AT + 6 - 0x10);
    assert_eq!(back.near_branch_target(), AT + 6);
}

/// A loop back to the `syscall` goes through the jump at the site again, and so through the hook.
#[test]
fn a_loop_goes_back_to_the_site() {
    let stub = stub_of(&[&SYSCALL, &[0x85, 0xc0], &[0x78, 0xfa]], 0);
    assert_eq!(stub[stub.len() - 2].near_branch_target(), AT);
}

#[test]
fn out_of_reach_is_no_stub() {
    // mov rsi, [rip + 0x7fff0000]: 2 GiB from the text, more from the stub.
    let load = [0x48, 0x8b, 0x35, 0, 0, 0xff, 0x7f];
    let range = decoded(&[&load[..], &SYSCALL].concat(), AT);
    assert!(assemble(&range, 1, STUB, SLOT).is_none());
}
