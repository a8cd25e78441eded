//! Times of files: nanoseconds since the epoch in 64 bits, the years 1677 to 2262.

use libc::EINVAL;

/// A second, ns.
pub const SECOND_NS: i64 = 1_000_000_000;

/// A time to set, of seconds and nanoseconds.
///
/// # Errors
/// EINVAL: it can't be kept, and another must not be kept in its place.
pub fn time_ns(seconds: i64, nanoseconds: i64) -> Result<i64, i32> {
    if !(0..SECOND_NS).contains(&nanoseconds) {
        return Err(EINVAL);
    }
    let ns = i128::from(seconds) * i128::from(SECOND_NS) + i128::from(nanoseconds);
    i64::try_from(ns).map_err(|_| EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_can_be_kept() {
        assert_eq!(time_ns(1, 5), Ok(SECOND_NS + 5));
        assert_eq!(time_ns(-1, 5), Ok(5 - SECOND_NS));
        let last = i64::MAX / SECOND_NS;
        assert_eq!(time_ns(last, i64::MAX % SECOND_NS), Ok(i64::MAX));
        assert_eq!(time_ns(last, i64::MAX % SECOND_NS + 1), Err(EINVAL));
        assert_eq!(time_ns(i64::MAX, 0), Err(EINVAL));
        assert_eq!(time_ns(i64::MIN, 0), Err(EINVAL));
        assert_eq!(time_ns(0, SECOND_NS), Err(EINVAL));
    }
}
