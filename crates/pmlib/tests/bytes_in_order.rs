//! Goal: vectors and queues that keep their bytes give back what they were given, and no object
//! is lost. Method: random calls, alone and in transactions of which some are dropped, beside the
//! standard library's, with the number of objects counted.

use std::collections::VecDeque;

use pmlib::containers::{PBytes, PQueue, PVec};
use pmlib::{Error, Heap, Options};

const ROUNDS: u64 = 3000;
const LEN_MAX: u64 = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.below(LEN_MAX) as usize;
        vec![self.below(256) as u8; len]
    }
}

/// Does a call on `$on`, and on the model; a bad index is one in both.
macro_rules! call {
    ($on:expr, $roots:expr, $random:expr, $vec:expr, $queue:expr) => {{
        let ((kept, sent), random) = ($roots, &mut $random);
        let bytes = random.bytes();
        match random.below(6) {
            0 | 1 => {
                assert_eq!($on.at(kept).push_bytes(&bytes)?, $vec.len() as u64);
                $vec.push(bytes);
            }
            2 => assert_eq!($on.at(kept).pop_bytes()?, $vec.pop()),
            3 => {
                let index = random.below($vec.len() as u64 + 1);
                let done = $on.at(kept).set_bytes(index, &bytes);
                match $vec.get_mut(index as usize) {
                    Some(value) => {
                        done?;
                        *value = bytes;
                    }
                    None => assert!(matches!(done, Err(Error::Index { .. })), "{done:?}"),
                }
            }
            4 => {
                $on.at(sent).push_bytes(&bytes)?;
                $queue.push_back(bytes);
            }
            _ => assert_eq!($on.at(sent).pop_bytes()?, $queue.pop_front()),
        }
    }};
}

#[test]
fn they_keep_what_they_are_given() -> Result<(), Error> {
    let heap = Heap::private(8 << 20, &Options::default())?;
    let kept = heap.root::<PVec<PBytes>>("kept")?;
    let sent = heap.root::<PQueue<PBytes>>("sent")?;
    let before = heap.check()?.objects;
    let (mut random, mut vec, mut queue) = (Random(7), Vec::new(), VecDeque::new());
    for round in 0..ROUNDS {
        if round % 3 == 0 {
            let (old_vec, old_queue) = (vec.clone(), queue.clone());
            let is_dropped = random.below(3) == 0;
            let done = heap.tx(|tx| {
                for _ in 0..3 {
                    call!(tx, (kept, sent), random, vec, queue);
                }
                match is_dropped {
                    true => Err(Error::Size { size: 0 }),
                    false => Ok(()),
                }
            });
            if is_dropped {
                assert!(matches!(done, Err(Error::Size { size: 0 })), "{done:?}");
                (vec, queue) = (old_vec, old_queue);
            } else {
                done?;
            }
        } else {
            call!(heap, (kept, sent), random, vec, queue);
        }
        assert_eq!(heap.at(sent).peek_bytes()?.as_ref(), queue.front());
        assert_eq!(heap.at(kept).len()?, vec.len() as u64);
        let index = random.below(vec.len() as u64 + 1);
        assert_eq!(
            heap.at(kept).get_bytes(index)?.as_ref(),
            vec.get(index as usize)
        );
    }
    heap.at(kept).clear_bytes()?;
    heap.at(sent).clear_bytes()?;
    assert_eq!(heap.at(sent).peek_bytes()?, None);
    assert_eq!(heap.check()?.objects, before);
    Ok(())
}
