//! Sizes, times and other option values of `terrace sim cache`.

use std::str::FromStr;

use cache::{OnHit, UnknownExtent};
use clap::ValueEnum;
use units::{Bytes, Nanos};

/// `--sizes`
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AskedSize {
    /// Size with a unit.
    Bytes(Bytes),
    Pages(u64),
    /// Share of the distinct pages of the trace, percent.
    Percent(f64),
}

impl FromStr for AskedSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(number) = text.strip_suffix('%') {
            let percent: f64 = number
                .trim()
                .parse()
                .map_err(|_| format!("\"{text}\" is not a share of the pages"))?;
            if !(percent > 0.0 && percent.is_finite()) {
                return Err(format!("a share of the pages is above 0 %, not {text}"));
            }
            return Ok(Self::Percent(percent));
        }
        let pages = text.strip_suffix("pages").or(text.strip_suffix('p'));
        if let Some(number) = pages {
            let pages = number.trim().parse();
            return pages
                .map(Self::Pages)
                .map_err(|_| format!("\"{text}\" is not a number of pages"));
        }
        let bytes = text.parse::<Bytes>();
        bytes.map(Self::Bytes).map_err(|e| e.to_string())
    }
}

impl AskedSize {
    /// Returns the size of the cache in pages, for a trace with `working_set` distinct pages.
    pub fn pages(self, working_set: u64, page: Bytes) -> anyhow::Result<u64> {
        let pages = match self {
            Self::Bytes(bytes) => bytes.0 / page.0,
            Self::Pages(pages) => pages,
            Self::Percent(percent) => (working_set as f64 * percent / 100.0).round() as u64,
        };
        let shown = match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Pages(pages) => format!("{pages} pages"),
            Self::Percent(percent) => format!("{percent} % of {working_set} pages"),
        };
        anyhow::ensure!(pages > 0, "a cache of {shown} has no page of {page}");
        let max = u64::from(cache::CAPACITY_PAGES_MAX);
        anyhow::ensure!(
            pages <= max,
            "a cache of {shown} has more than {max} pages of {page}"
        );
        Ok(pages)
    }
}

/// Value of `--response`: time of a hit and of a miss.
#[derive(Debug, Clone, Copy)]
pub struct HitMissTimes(pub Nanos, pub Nanos);

impl FromStr for HitMissTimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (hit, miss) = text
            .split_once(',')
            .ok_or("give two times, of a hit and of a miss, such as 20us,6ms")?;
        let time = |t: &str| t.trim().parse::<Nanos>().map_err(|e| e.to_string());
        let (hit, miss) = (time(hit)?, time(miss)?);
        if hit > miss {
            return Err(format!(
                "a hit takes {hit}, longer than a miss with {miss}: the time of a hit comes first"
            ));
        }
        Ok(Self(hit, miss))
    }
}

/// `--on-hit`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HitPlace {
    /// To the most recently used end
    Top,
    /// To the position of a new page
    Again,
}

impl From<HitPlace> for OnHit {
    fn from(place: HitPlace) -> Self {
        match place {
            HitPlace::Top => Self::Top,
            HitPlace::Again => Self::Again,
        }
    }
}

/// `--unknown-extent`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnknownPlace {
    /// At 20 %, as for an extent without hits
    Lowest,
    /// At the most recently used end, as in LRU
    Top,
}

impl From<UnknownPlace> for UnknownExtent {
    fn from(place: UnknownPlace) -> Self {
        match place {
            UnknownPlace::Lowest => Self::Lowest,
            UnknownPlace::Top => Self::Top,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_parse_and_convert_to_pages() {
        let page = Bytes(4096);
        for (text, pages) in [
            ("1MiB", 256),
            ("4 KiB", 1),
            ("5000p", 5000),
            ("12 pages", 12),
            ("10%", 100),
            ("0.25 %", 3),
        ] {
            let size: AskedSize = text.parse().unwrap();
            assert_eq!(size.pages(1000, page).unwrap(), pages, "{text}");
        }
        for text in ["", "10", "-3%", "nan%", "x%", "1.5p", "many pages"] {
            assert!(text.parse::<AskedSize>().is_err(), "{text}");
        }
        let none = |text: &str| {
            let size: AskedSize = text.parse().unwrap();
            size.pages(1000, page).unwrap_err().to_string()
        };
        assert_eq!(none("1 KiB"), "a cache of 1 KiB has no page of 4 KiB");
        assert!(none("0.01%").starts_with("a cache of 0.01 % of 1000 pages"));
        assert!(none("1024 TiB").contains("more than"));
    }

    #[test]
    fn response_times_with_hit_slower_than_miss_are_refused() {
        let times: HitMissTimes = "20us, 6ms".parse().unwrap();
        assert_eq!((times.0.0, times.1.0), (20_000, 6_000_000));
        assert!("1ms,1ms".parse::<HitMissTimes>().is_ok());
        for text in ["6ms,20us", "6ms", "fast,6ms", ""] {
            assert!(text.parse::<HitMissTimes>().is_err(), "{text}");
        }
    }
}
