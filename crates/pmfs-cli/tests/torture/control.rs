//! A thread that does nothing but sleep, as a waiter does: how late it wakes up is the
//! machine's delay.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A waiter's first sleep.
const SLEEP: Duration = Duration::from_millis(2);
const REMEMBERED: usize = 4096;

#[derive(Clone, Copy)]
struct Nap {
    began: Instant,
    ended: Instant,
}

type Naps = Arc<Mutex<VecDeque<Nap>>>;

pub struct Control {
    naps: Naps,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    pub fn start() -> Control {
        let (naps, stop) = (Naps::default(), Arc::new(AtomicBool::new(false)));
        let (theirs, ends) = (naps.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(SLEEP);
                let ended = Instant::now();
                let mut naps = theirs.lock().expect("no panic");
                naps.push_back(Nap { began, ended });
                if naps.len() > REMEMBERED {
                    naps.pop_front();
                }
            }
        });
        Control {
            naps,
            stop,
            thread: Some(thread),
        }
    }

    /// The longest delay of a sleep that touched this time.
    pub fn delay(&self, from: Instant, to: Instant) -> Duration {
        let naps = self.naps.lock().expect("no panic");
        let touching = naps
            .iter()
            .filter(|nap| nap.ended >= from && nap.began <= to);
        let delays = touching.map(|nap| (nap.ended - nap.began).saturating_sub(SLEEP));
        delays.max().unwrap_or_default()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
