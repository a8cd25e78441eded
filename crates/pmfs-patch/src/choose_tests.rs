//! Goal: each decision about what is overwritten, alone. Method: a few hand-assembled
//! bytes at 0x1000, and what the surroundings are said to be; the `syscall` is the
//! first that decoding finds.

use std::slice;

use super::*;
use crate::code::Code as Decoded;
use crate::targets::add_code;

const AT: u64 = 0x1000;
const MOV_EAX_39: &[u8] = &[0xb8, 39, 0, 0, 0];
const XOR_EAX: &[u8] = &[0x31, 0xc0];
const MOV_R10_RCX: &[u8] = &[0x49, 0x89, 0xca];
const MOV_EDI_EBX: &[u8] = &[0x89, 0xdf];
const SYSCALL: &[u8] = &[0x0f, 0x05];
const CMP_RAX_MINUS_4: &[u8] = &[0x48, 0x83, 0xf8, 0xfc];
const TEST_EAX: &[u8] = &[0x85, 0xc0];
const JS_ON: &[u8] = &[0x78, 0x20];
const PUSH_RDI: &[u8] = &[0x57];
const RET: &[u8] = &[0xc3];
const CALL: &[u8] = &[0xe8, 0, 1, 0, 0];

/// The surroundings of a site, besides the code.
#[derive(Default)]
struct Given<'a> {
    targets: &'a [u64],
    rows: &'a [u64],
    floor: u64,
}

fn decoded(parts: &[&[u8]]) -> (Decoded, Addresses, usize) {
    let bytes = parts.concat();
    let section = AT..AT + bytes.len() as u64;
    let code = Decoded::decode(&bytes, AT, slice::from_ref(&section), &[]);
    assert_eq!(code.undecoded_bytes(), 0);
    let mut targets = Addresses::new(AT, bytes.len());
    add_code(&mut targets, &code.instructions);
    let site = code.sites().next().expect("a syscall");
    (code, targets, site)
}

fn choose_given(parts: &[&[u8]], given: &Given) -> Result<(usize, usize), Reason> {
    let (code, mut targets, site) = decoded(parts);
    for target in given.targets {
        targets.add(*target);
    }
    let surroundings = Surroundings {
        instructions: &code.instructions,
        targets: &targets,
        rows: given.rows,
        floor: given.floor,
    };
    let choice = surroundings.choose(site)?;
    Ok((choice.before, choice.after))
}

fn with_targets(parts: &[&[u8]], targets: &[u64]) -> Result<(usize, usize), Reason> {
    let given = Given {
        targets,
        ..Given::default()
    };
    choose_given(parts, &given)
}

fn with_rows(parts: &[&[u8]], rows: &[u64]) -> Result<(usize, usize), Reason> {
    let given = Given {
        rows,
        ..Given::default()
    };
    choose_given(parts, &given)
}

fn choose(parts: &[&[u8]]) -> Result<(usize, usize), Reason> {
    choose_given(parts, &Given::default())
}

fn number(parts: &[&[u8]], targets_given: &[u64]) -> Option<i32> {
    let (code, mut targets, site) = decoded(parts);
    for target in targets_given {
        targets.add(*target);
    }
    let surroundings = Surroundings {
        instructions: &code.instructions,
        targets: &targets,
        rows: &[],
        floor: 0,
    };
    surroundings.number(site)
}

fn no_room(before: Obstacle, after: Obstacle) -> Result<(usize, usize), Reason> {
    Err(Reason::NoRoom { before, after })
}

#[test]
fn the_instruction_before_is_preferred() {
    let parts = [MOV_EAX_39, SYSCALL, CMP_RAX_MINUS_4, RET];
    assert_eq!(choose(&parts), Ok((1, 0)));
}

#[test]
fn as_many_before_as_are_needed() {
    let parts = [MOV_EDI_EBX, MOV_R10_RCX, XOR_EAX, SYSCALL, CMP_RAX_MINUS_4];
    assert_eq!(choose(&parts), Ok((2, 0)));
}

/// A loop goes back to the `syscall` itself: it must stay the first byte.
#[test]
fn a_restart_loop_takes_what_follows() {
    let back = [0x74, 0xf8];
    let parts = [MOV_EAX_39, SYSCALL, CMP_RAX_MINUS_4, &back, RET];
    assert_eq!(choose(&parts), Ok((0, 1)));
}

/// A branch may lead to the first overwritten byte, not into the instructions behind it.
#[test]
fn targets_before() {
    let parts = [MOV_R10_RCX, XOR_EAX, SYSCALL, RET];
    assert_eq!(with_targets(&parts, &[AT]), Ok((2, 0)));
    let blocked = no_room(Obstacle::Target, Obstacle::Flow);
    assert_eq!(with_targets(&parts, &[AT + 3]), blocked);
    assert_eq!(with_targets(&parts, &[AT + 1]), blocked);
    assert_eq!(with_targets(&parts, &[AT + 5]), blocked);
}

#[test]
fn targets_behind() {
    let parts = [PUSH_RDI, SYSCALL, CMP_RAX_MINUS_4, RET];
    let blocked = no_room(Obstacle::Stack, Obstacle::Target);
    assert_eq!(with_targets(&parts, &[AT + 7]), Ok((0, 1)));
    assert_eq!(with_targets(&parts, &[AT + 3]), blocked);
    assert_eq!(with_targets(&parts, &[AT + 6]), blocked);
}

#[test]
fn the_stack_pointer_is_never_changed_in_a_stub() {
    let sub_rsp = [0x48, 0x83, 0xec, 0x08];
    let leave = [0xc9];
    assert_eq!(
        choose(&[&sub_rsp, SYSCALL, PUSH_RDI, PUSH_RDI, PUSH_RDI]),
        no_room(Obstacle::Stack, Obstacle::Stack)
    );
    assert_eq!(
        choose(&[&leave, SYSCALL, CMP_RAX_MINUS_4]),
        Ok((0, 1)),
        "the other side is taken"
    );
    // Reading it is allowed.
    let load = [0x48, 0x8b, 0x44, 0x24, 0x08];
    assert_eq!(choose(&[&load, SYSCALL, RET]), Ok((1, 0)));
}

#[test]
fn calls_and_returns_stay() {
    assert_eq!(choose(&[CALL, SYSCALL, CMP_RAX_MINUS_4]), Ok((0, 1)));
    assert_eq!(
        choose(&[CALL, SYSCALL, CALL]),
        no_room(Obstacle::Target, Obstacle::Flow)
    );
    assert_eq!(
        choose(&[RET, XOR_EAX, SYSCALL, RET]),
        no_room(Obstacle::Flow, Obstacle::Flow)
    );
}

/// Goal: the jump may be at the place that a call returns to, and no instruction before it may be
/// overwritten.
#[test]
fn behind_a_call() {
    assert_eq!(choose(&[CALL, MOV_EAX_39, SYSCALL, RET]), Ok((1, 0)));
    assert_eq!(
        choose(&[CALL, XOR_EAX, SYSCALL, RET]),
        no_room(Obstacle::Target, Obstacle::Flow)
    );
}

#[test]
fn both_sides_together() {
    let parts = [PUSH_RDI, XOR_EAX, SYSCALL, TEST_EAX, RET];
    assert_eq!(choose(&parts), Ok((1, 1)));
}

/// A direct branch may be the last of what is moved.
#[test]
fn a_branch_may_come_last() {
    let parts = [PUSH_RDI, SYSCALL, TEST_EAX, JS_ON, RET];
    assert_eq!(choose(&parts), Ok((0, 2)));
    // jrcxz: neither does it reach far, nor is rcx the program's.
    let jrcxz = [0xe3, 0x20];
    assert_eq!(
        choose(&[PUSH_RDI, SYSCALL, TEST_EAX, &jrcxz, RET]),
        no_room(Obstacle::Stack, Obstacle::Flow)
    );
}

/// No change of rules up to the `syscall`, none from behind it on; right behind it
/// there may be one.
#[test]
fn unwinding_stays_the_same() {
    let before = [MOV_EAX_39, SYSCALL, RET];
    for row in [AT, AT + 7, AT + 8] {
        assert_eq!(with_rows(&before, &[row]), Ok((1, 0)));
    }
    let blocked = no_room(Obstacle::Unwind, Obstacle::Flow);
    for row in [AT + 1, AT + 5] {
        assert_eq!(with_rows(&before, &[row]), blocked);
    }
    let after = [PUSH_RDI, SYSCALL, CMP_RAX_MINUS_4, RET];
    for row in [AT + 1, AT + 3, AT + 8] {
        assert_eq!(with_rows(&after, &[row]), Ok((0, 1)));
    }
    let blocked = no_room(Obstacle::Stack, Obstacle::Unwind);
    for row in [AT + 4, AT + 7] {
        assert_eq!(with_rows(&after, &[row]), blocked);
    }
}

/// Another system call is not moved, and an earlier site's jump is not overwritten.
#[test]
fn sites_do_not_overlap() {
    assert_eq!(
        choose(&[PUSH_RDI, SYSCALL, SYSCALL, RET]),
        no_room(Obstacle::Stack, Obstacle::Site)
    );
    let given = Given {
        floor: AT + 1,
        ..Given::default()
    };
    assert_eq!(
        choose_given(&[MOV_EAX_39, SYSCALL, RET], &given),
        no_room(Obstacle::Site, Obstacle::Flow)
    );
}

/// Indirect branches may be required to land on endbr64, so it stays.
#[test]
fn endbr64_stays() {
    let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
    assert_eq!(
        choose(&[&endbr64, SYSCALL, RET]),
        no_room(Obstacle::Target, Obstacle::Flow)
    );
}

/// The hook steps over two bytes.
#[test]
fn a_prefixed_syscall_is_left() {
    let prefixed = [0x48, 0x0f, 0x05];
    assert_eq!(choose(&[MOV_EAX_39, &prefixed, RET]), Err(Reason::Prefixed));
}

#[test]
fn numbers() {
    let mov_rax = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0];
    let load_eax = [0x8b, 0x07];
    let set_al = [0xb0, 0x01];
    assert_eq!(number(&[MOV_EAX_39, SYSCALL], &[]), Some(39));
    assert_eq!(number(&[&mov_rax, SYSCALL], &[]), Some(15));
    let between = [MOV_EAX_39, MOV_R10_RCX, JS_ON, MOV_EDI_EBX, SYSCALL];
    assert_eq!(number(&between, &[]), Some(39));
    assert_eq!(number(&[MOV_EAX_39, XOR_EAX, SYSCALL], &[]), Some(0));
    assert_eq!(number(&[MOV_EAX_39, &load_eax, SYSCALL], &[]), None);
    assert_eq!(number(&[MOV_EAX_39, &set_al, SYSCALL], &[]), None);
    assert_eq!(number(&[MOV_EAX_39, CALL, SYSCALL], &[]), None);
    // Another way may lead here, with another number.
    assert_eq!(number(&[MOV_EAX_39, SYSCALL], &[AT + 5]), None);
}
