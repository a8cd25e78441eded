//! Times as people read them, in UTC: no time zone is looked up.

/// `2026-01-31 23:59`.
pub fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        second / 3600,
        second / 60 % 60
    )
}

/// Days since 1970-01-01 as a Gregorian date (Hinnant, "chrono-compatible low-level
/// date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn known_dates() {
        let second = 1_000_000_000;
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(-second), "1969-12-31 23:59");
        assert_eq!(utc(951_782_400 * second), "2000-02-29 00:00");
        assert_eq!(utc(1_700_000_000 * second), "2023-11-14 22:13");
    }
}
