//! A bank that survives `kill -9`: `cargo run -p pmlib --example bank -- /dev/shm/bank`.
//!
//! It moves money between accounts until it is killed. Started again, it tells what it finds: every
//! transfer that was begun has happened wholly or not at all, and is in the journal or not.
#![forbid(unsafe_code)]

use std::path::Path;

use pmlib::containers::{PLog, PStr, PVec};
use pmlib::{Error, Heap, Options, P, PmSafe, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const ACCOUNTS: u64 = 10;
const EACH: u64 = 1000;

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Account {
    owner: PStr,
    balance: u64,
}

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Bank {
    accounts: PVec<P<Account>>,
    journal: PLog,
}

/// A transfer, as the journal has it.
#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Transfer {
    from: u64,
    to: u64,
    amount: u64,
}

/// Opens the bank, or makes it with its accounts.
fn open(path: &Path) -> Result<(Heap, P<Bank>), Error> {
    let options = Options::default();
    let heap = if path.exists() {
        Heap::open(path, &options)?
    } else {
        Heap::create(path, 64 << 20, &options)?
    };
    let bank = heap.root::<Bank>("bank")?;
    if heap.at(field!(bank, Bank, accounts)).is_empty()? {
        heap.tx(|tx| {
            for number in 0..ACCOUNTS {
                let owner = tx.new_str(&format!("owner of account {number}"))?;
                let balance = EACH;
                let account = tx.new(Account { owner, balance })?;
                tx.at(field!(bank, Bank, accounts)).push(account)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok((heap, bank))
}

/// Moves money, and notes it. It is durable when this returns.
fn transfer(heap: &Heap, bank: P<Bank>, what: &Transfer) -> Result<(), Error> {
    let accounts = heap.at(field!(bank, Bank, accounts)).to_vec()?;
    let (from, to) = (accounts[what.from as usize], accounts[what.to as usize]);
    heap.tx(|tx| {
        tx.lock_all([from, to])?;
        let amount = what.amount.min(tx.read(from)?.balance);
        tx.edit(from)?.balance -= amount;
        tx.edit(to)?.balance += amount;
        let noted = Transfer { amount, ..*what };
        tx.at(field!(bank, Bank, journal))
            .append(noted.as_bytes())?;
        Ok(())
    })
}

/// The balances, by the accounts and by the journal, of one moment.
fn balances(heap: &Heap, bank: P<Bank>) -> Result<[Vec<u64>; 2], Error> {
    let accounts = heap.at(field!(bank, Bank, accounts)).to_vec()?;
    let now: Result<Vec<u64>, Error> = heap.view(|view| {
        let each = accounts.iter();
        each.map(|&account| Ok(view.read(account)?.balance))
            .collect()
    });
    let mut noted = vec![EACH; accounts.len()];
    for record in heap.at(field!(bank, Bank, journal)).iter() {
        let (_, bytes) = record?;
        let transfer = Transfer::read_from_bytes(&bytes).expect("as it was put there");
        noted[transfer.from as usize] -= transfer.amount;
        noted[transfer.to as usize] += transfer.amount;
    }
    Ok([now?, noted])
}

/// Moves money for ever.
pub fn work(path: &Path) -> Result<(), Error> {
    let (heap, bank) = open(path)?;
    let mut random = std::process::id().into();
    loop {
        random = u64::wrapping_mul(random, 6_364_136_223_846_793_005).wrapping_add(1);
        let [from, to] = [random >> 33, random >> 43].map(|bits| bits % ACCOUNTS);
        let amount = random >> 53 & 127;
        transfer(&heap, bank, &Transfer { from, to, amount })?;
    }
}

/// Tells how many transfers there were, after a look whether all is right.
pub fn look(path: &Path) -> Result<usize, Error> {
    let (heap, bank) = open(path)?;
    let [now, noted] = balances(&heap, bank)?;
    assert_eq!(now, noted, "the accounts and the journal");
    assert_eq!(now.iter().sum::<u64>(), ACCOUNTS * EACH);
    Ok(heap.at(field!(bank, Bank, journal)).iter().count())
}

#[allow(dead_code, reason = "a test has the rest")]
fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).expect("the path of a heap");
    let path = Path::new(&path);
    println!("{} transfers so far, and every one is whole", look(path)?);
    work(path)
}
