//! Wall time for certificates and tickets: injected, and the calendar behind its texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Seconds since the Unix epoch as the loop last saw them. Clones share the value.
///
/// Until the first [`WallClock::set`] there is no time, and every check of a certificate fails.
#[derive(Clone, Debug, Default)]
pub struct WallClock(Arc<AtomicU64>);

impl WallClock {
    /// Sets the time, once a turn.
    pub fn set(&self, since_epoch: Duration) {
        self.0.store(since_epoch.as_secs(), Ordering::Relaxed);
    }

    /// Seconds since the Unix epoch; `None` before the first [`WallClock::set`].
    #[must_use]
    pub fn unix_s(&self) -> Option<u64> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            seconds => Some(seconds),
        }
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        self.unix_s().map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

const DAY_S: u64 = 24 * 3600;
/// Days of 400 years: the period of the calendar.
const ERA_DAYS: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// A UTC date and time of day as seconds since the epoch. `None` before 1970 or for an impossible part.
pub(super) fn unix_s_of(year: u64, month: u64, day: u64, time_of_day: [u64; 3]) -> Option<u64> {
    let [hour, minute, second] = time_of_day;
    let possible = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !possible || year > 9999 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March put the leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    Some(days.checked_sub(EPOCH_DAYS)? * DAY_S + hour * 3600 + minute * 60 + second)
}

/// `2026-02-28 07:00:00 UTC`, for people.
pub(super) fn utc_text(unix_s: u64) -> String {
    let days = unix_s / DAY_S + EPOCH_DAYS;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (ERA_DAYS - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let (month, next_year) = if march_month < 10 { (march_month + 3, 0) } else { (march_month - 9, 1) };
    let year = era * 400 + year_of_era + next_year;
    let second = unix_s % DAY_S;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_knows_its_leap_days() {
        for (year, month, day, unix_s) in [
            (1970, 1, 1, 0),
            (2000, 2, 29, 951_782_400),
            (2024, 2, 29, 1_709_164_800),
            (2024, 3, 1, 1_709_251_200),
            (2100, 3, 1, 4_107_542_400),
            (4096, 1, 1, 67_090_118_400),
        ] {
            assert_eq!(unix_s_of(year, month, day, [0, 0, 0]), Some(unix_s), "{year}-{month}-{day}");
            let text = utc_text(unix_s + 7 * 3600 + 62);
            assert_eq!(text, format!("{year:04}-{month:02}-{day:02} 07:01:02 UTC"));
        }
        assert_eq!(unix_s_of(1969, 12, 31, [23, 59, 59]), None);
        assert_eq!(unix_s_of(2024, 13, 1, [0, 0, 0]), None);
        assert_eq!(unix_s_of(0, 1, 1, [0, 0, 0]), None);
    }

    #[test]
    fn there_is_no_time_before_it_is_set() {
        let clock = WallClock::default();
        assert!(clock.current_time().is_none());
        clock.clone().set(Duration::from_secs(5));
        assert_eq!(clock.current_time().map(|time| time.as_secs()), Some(5));
    }
}
