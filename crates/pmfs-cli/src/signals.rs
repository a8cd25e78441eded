//! Signals that end a mount, as messages.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use pmfs_fuse::Stop;

use crate::failure::Failure;

/// From now on SIGTERM, SIGINT and SIGHUP arrive as [`Stop`], as does what else is sent
/// there. To be called before any thread is started: threads inherit the mask, and one
/// that had them unblocked would end the process.
pub fn as_messages() -> Result<(Sender<Stop>, Receiver<Stop>), Failure> {
    let set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    set.thread_block()
        .map_err(|errno| Failure::new(format!("blocking signals: {errno}"), "report this"))?;
    let (sender, receiver) = channel();
    let signals = sender.clone();
    thread::spawn(move || {
        while let Ok(signal) = set.wait() {
            let stop = Stop::soon(format!("signal {}", signal.as_str()));
            if signals.send(stop).is_err() {
                return;
            }
        }
    });
    Ok((sender, receiver))
}
