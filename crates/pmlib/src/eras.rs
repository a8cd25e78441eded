//! Eras: by these an engine knows when what it has freed may be used again, although readers'
//! sessions look at it without copies.
//!
//! - The *era word* of a heap has the era's number above a state. Off: no session is open. On:
//!   sessions may be open. Closing: it is being found out whether any is. The word only ever grows,
//!   so that a CAS never mistakes an old value for the present one.
//! - A process has two *marks*, by the parity of eras: until when its sessions of such an era may
//!   be kept open; 0: it has none. A session that lasts longer may be ended by others, who put
//!   [`ENDED`] there.
//! - The era goes on if no session of the era before it is open. So a session sees the era of its
//!   beginning and the next one. Places that were freed two eras ago are nobody's.
//! - A free is done under a lock, and looks at the era with the lock taken. A session believes a
//!   slot that a lock covers only if it has seen the lock open since it was announced
//!   ([`is_at_rest`]). So a holder that has missed the session has cleared the way to what it frees
//!   before the session looks; every later holder knows of the session. The fast way of a free has
//!   no barrier of its own therefore.
//!
//! Nothing here outlives a run of the heap: the words lie in its volatile area. `yat` tries these
//! steps in every order (`crates/yat/tests/kv_sessions.rs`).

use crate::protocol::Words;

/// Bits of the state.
const STATE_BITS: u32 = 2;
const OFF: u64 = 0;
const ON: u64 = 1;
const CLOSING: u64 = 2;

/// A mark: others have ended the sessions.
pub const ENDED: u64 = u64::MAX;
/// A mark: the sessions may be kept open for ever.
pub const FOR_EVER: u64 = u64::MAX - 1;
/// Eras after which a tag comes again.
const TAGS: u64 = 3;

/// The value of an era word. Its number has 62 bits, which no run of a heap uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Era(pub u64);

impl Era {
    fn new(number: u64, state: u64) -> Era {
        Era(number << STATE_BITS | state)
    }

    /// The era's number.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> STATE_BITS
    }

    fn state(self) -> u64 {
        self.0 & ((1 << STATE_BITS) - 1)
    }

    /// Whether no session is open.
    #[inline(always)]
    #[must_use]
    pub fn is_off(self) -> bool {
        self.state() == OFF
    }

    /// Which of a process's marks is that of its sessions.
    #[must_use]
    pub fn parity(self) -> usize {
        (self.number() & 1) as usize
    }

    /// The word with which a session begins.
    fn on(self) -> Era {
        match self.state() {
            CLOSING => Era::new(self.number() + 1, ON),
            _ => Era::new(self.number(), ON),
        }
    }

    /// The tag of something that is freed now: 0, 1 or 2.
    #[inline]
    #[must_use]
    pub fn tag(self) -> u64 {
        self.number() % TAGS
    }

    /// Whether something may be used again, which had this tag before this word was loaded.
    #[inline]
    #[must_use]
    pub fn is_over(self, tag: u64) -> bool {
        // Not of this era nor of the one before.
        self.is_off() || tag == (self.number() + 1) % TAGS
    }
}

/// The place of a mark.
#[inline]
#[must_use]
pub fn mark_at(marks: u64, parity: usize) -> u64 {
    marks + 8 * parity as u64
}

/// Begins a session of a process, whose marks are at `marks`; answers the parity of its era. One
/// thread of the process at a time. `others`: the mark of the process's further sessions of a
/// parity. `recycled`: those of a parity were ended by others, and are to be known as that from
/// here on.
#[cfg_attr(feature = "record", track_caller)]
pub fn begin(
    words: &impl Words,
    era_at: u64,
    marks: u64,
    until: u64,
    others: impl Fn(usize) -> u64,
    mut recycled: impl FnMut(usize),
) -> usize {
    loop {
        let era = Era(words.load(era_at));
        let parity = era.parity();
        let at = mark_at(marks, parity);
        announce(words, at, until, || recycled(parity));
        if planted!("bug-session-of-any-era") {
            return parity;
        }
        // The CAS is a barrier as well: it stands before all that the session looks at.
        let on = era.on();
        if words.cas(era_at, era.0, on.0).is_ok() && on.number() == era.number() {
            return parity;
        }
        lower(words, at, others(parity));
    }
}

/// Has a mark be that of the sessions that are left; 0: none.
#[cfg_attr(feature = "record", track_caller)]
pub fn lower(words: &impl Words, at: u64, left: u64) {
    loop {
        let mark = words.load(at);
        // Those that were ended stay ended.
        if mark == left || mark == ENDED && left != 0 || words.cas(at, mark, left).is_ok() {
            return;
        }
    }
}

/// Has a mark be at least `until`.
#[cfg_attr(feature = "record", track_caller)]
fn announce(words: &impl Words, at: u64, until: u64, mut recycled: impl FnMut()) {
    loop {
        let mark = words.load(at);
        if mark == ENDED {
            // Before the mark says anything else.
            recycled();
        }
        let new = match mark {
            ENDED => until,
            _ => mark.max(until),
        };
        if words.cas(at, mark, new).is_ok() {
            return;
        }
    }
}

/// The era for something that is freed: it was the present one after all that this thread has
/// stored before.
#[cfg_attr(feature = "record", track_caller)]
pub fn era_of_free(words: &impl Words, era_at: u64) -> Era {
    let mut era = words.load(era_at);
    while let Err(found) = words.cas(era_at, era, era) {
        era = found;
    }
    Era(era)
}

/// Whether a lock is open. A session that was announced before knows then that each holder from
/// here on knows of it, and that those before have done all that they did.
#[inline(always)]
pub fn is_at_rest(words: &impl Words, owner_at: u64) -> bool {
    words.load(owner_at) == 0 || planted!("bug-session-looks-beside-a-writer")
}

/// Has the era go on, if it may; answers the era word. `is_open`: whether any process has a session
/// of this parity that is not to be ended.
#[cfg_attr(feature = "record", track_caller)]
pub fn advance(words: &impl Words, era_at: u64, mut is_open: impl FnMut(usize) -> bool) -> Era {
    loop {
        let era = Era(words.load(era_at));
        // A barrier before the marks are looked at, as after a session's announcement.
        if era.is_off() || words.cas(era_at, era.0, era.0).is_err() {
            return Era(words.load(era_at));
        }
        if is_open(1 - era.parity()) {
            return era;
        }
        let next = match (is_open(era.parity()), era.state()) {
            (true, _) => Era::new(era.number() + 1, ON),
            (false, CLOSING) => Era::new(era.number() + 1, OFF),
            (false, _) => Era::new(era.number(), CLOSING),
        };
        let is_done = words.cas(era_at, era.0, next.0).is_ok();
        if !is_done || next.state() != CLOSING {
            return Era(words.load(era_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was freed is used again two eras later, or when no session is open. Method: each
    /// tag at each era after its own.
    #[test]
    fn a_tag_is_over_after_two_eras() {
        for number in 0..20 {
            let tag = Era::new(number, ON).tag();
            for later in number..=number + 1 {
                assert!(!Era::new(later, ON).is_over(tag), "{number} {later}");
                assert!(!Era::new(later, CLOSING).is_over(tag), "{number} {later}");
            }
            assert!(Era::new(number + 2, ON).is_over(tag));
            assert!(Era::new(number + 1, OFF).is_over(tag));
        }
    }

    /// Goal: the word only grows. Method: each way from each state.
    #[test]
    fn the_word_grows() {
        let (off, on, closing) = (Era::new(7, OFF), Era::new(7, ON), Era::new(7, CLOSING));
        assert_eq!((off.on(), on.on()), (on, on));
        assert!(off < on && on < closing && closing < closing.on());
        assert!(closing < Era::new(8, OFF) && Era::new(8, OFF) < closing.on());
    }
}
