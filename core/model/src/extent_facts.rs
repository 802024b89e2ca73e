//! Places and heat of the extents of one volume.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId};

use crate::{ExtentRanges, ModelError};

/// Extents of one volume. A volume may have a million extents, so places are stored as runs, heat only for extents with requests,
/// and both as text in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentFacts {
    /// Size of an extent; the last extent of a volume may be short.
    pub extent: Bytes,
    /// Device of each extent.
    pub places: ExtentPlaces,
    /// Number of requests to each extent since the last facts; `None` if unknown.
    pub heat: Option<ExtentHeat>,
}

/// Devices of extents, as runs of consecutive extents on one device.
///
/// The text and JSON form lists the runs as `COUNTxDEVICE`: `100x0,20x-,3x1`. DEVICE is the number of the device, or `-` for
/// extents without allocated space, which were never written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExtentPlaces {
    runs: Vec<(u32, Option<DeviceId>)>,
}

/// Number of requests of each extent that had any. A request counts for every extent that it touches.
///
/// The text and JSON form lists the extents with requests as `GAP:REQUESTS`: `4:17,0:3` means 17 requests to extent 4 and
/// 3 to extent 5. GAP is the number of extents without requests before this one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExtentHeat {
    touched: Vec<(u32, u32)>,
}

impl ExtentPlaces {
    /// Collects the place of every extent, in order.
    pub fn of(places: impl IntoIterator<Item = Option<DeviceId>>) -> Self {
        Self::of_runs(places.into_iter().map(|place| (1, place)))
    }

    /// Collects runs: a number of extents and their common place. Adjacent runs in one place are joined.
    pub fn of_runs(all: impl IntoIterator<Item = (u32, Option<DeviceId>)>) -> Self {
        let mut runs: Vec<(u32, Option<DeviceId>)> = Vec::new();
        for (count, place) in all {
            match runs.last_mut() {
                Some(last) if last.1 == place => last.0 += count,
                _ if count == 0 => {}
                _ => runs.push((count, place)),
            }
        }
        Self { runs }
    }

    /// Returns the runs: a number of extents and their common place.
    pub fn runs(&self) -> &[(u32, Option<DeviceId>)] {
        &self.runs
    }

    /// Number of extents.
    pub fn count(&self) -> u32 {
        self.runs.iter().map(|r| r.0).sum()
    }

    /// Returns the bytes on each device, in the order of devices, for a volume of `size` bytes with extents of `extent` bytes.
    pub fn held(&self, size: Bytes, extent: Bytes) -> Vec<(DeviceId, Bytes)> {
        let mut held: Vec<(DeviceId, Bytes)> = Vec::new();
        let mut begin = 0_u64;
        for (count, place) in &self.runs {
            let end = begin + u64::from(*count) * extent.0;
            let bytes = Bytes(size.0.min(end).saturating_sub(begin));
            begin = end;
            let Some(device) = place else { continue };
            match held.iter_mut().find(|h| h.0 == *device) {
                Some(h) => h.1 += bytes,
                None => held.push((*device, bytes)),
            }
        }
        held.sort();
        held
    }

    /// Returns the extents on the devices that `wanted` accepts.
    pub fn those_on(&self, wanted: impl Fn(DeviceId) -> bool) -> ExtentRanges {
        let mut next = 0;
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (count, place) in &self.runs {
            let (first, end) = (next, next + count);
            next = end;
            if place.is_some_and(&wanted) {
                match ranges.last_mut() {
                    Some(last) if last.1 == first => last.1 = end,
                    _ => ranges.push((first, end)),
                }
            }
        }
        ExtentRanges::from_ranges(ranges).expect("runs rise")
    }
}

impl ExtentHeat {
    /// Takes pairs of extent and requests, in strictly rising order of extents. Extents without requests are omitted.
    ///
    /// # Panics
    /// If the extents do not rise strictly.
    pub fn of(touched: Vec<(u32, u32)>) -> Self {
        assert!(
            touched.is_sorted_by(|a, b| a.0 < b.0),
            "extents must rise strictly"
        );
        Self { touched }
    }

    /// Returns pairs of extent and requests, in rising order of extents.
    pub fn touched(&self) -> &[(u32, u32)] {
        &self.touched
    }
}

impl From<ExtentPlaces> for String {
    fn from(places: ExtentPlaces) -> String {
        let mut text = String::new();
        for (count, place) in &places.runs {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = match place {
                Some(device) => write!(text, "{comma}{count}x{}", device.0),
                None => write!(text, "{comma}{count}x-"),
            };
        }
        text
    }
}

/// Parses a number that consists of digits only.
fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.is_empty())
}

fn item_error(item: &str, form: &'static str) -> ModelError {
    let item = item.into();
    ModelError::ExtentItem { item, form }
}

impl TryFrom<String> for ExtentPlaces {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        const FORM: &str = "<extents>x<device number or ->, such as 16x2";
        let mut runs: Vec<(u32, Option<DeviceId>)> = Vec::new();
        let mut count = 0_u32;
        for piece in pieces(&text) {
            let run = piece.split_once('x').and_then(|(extents, device)| {
                let extents: u32 = number(extents).filter(|n| *n > 0)?;
                match device {
                    "-" => Some((extents, None)),
                    _ => Some((extents, Some(DeviceId(number(device)?)))),
                }
            });
            let run = run.ok_or_else(|| item_error(piece, FORM))?;
            let more = count.checked_add(run.0);
            count = more.ok_or_else(|| ModelError::TooManyExtents(piece.into()))?;
            match runs.last_mut() {
                Some(last) if last.1 == run.1 => last.0 += run.0,
                _ => runs.push(run),
            }
        }
        Ok(Self { runs })
    }
}

impl From<ExtentHeat> for String {
    fn from(heat: ExtentHeat) -> String {
        let mut text = String::new();
        let mut next = 0;
        for (extent, ios) in &heat.touched {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{}:{ios}", extent - next);
            next = extent + 1;
        }
        text
    }
}

impl TryFrom<String> for ExtentHeat {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        const FORM: &str = "<extents skipped>:<requests, at least 1>, such as 4:17";
        let mut touched = Vec::new();
        let mut next = 0_u32;
        for piece in pieces(&text) {
            let pair = piece.split_once(':').and_then(|(gap, ios)| {
                let ios: u32 = number(ios).filter(|n| *n > 0)?;
                Some((number::<u32>(gap)?, ios))
            });
            let (gap, ios) = pair.ok_or_else(|| item_error(piece, FORM))?;
            let too_many = || ModelError::TooManyExtents(piece.into());
            let extent = next.checked_add(gap).ok_or_else(too_many)?;
            next = extent.checked_add(1).ok_or_else(too_many)?;
            touched.push((extent, ios));
        }
        Ok(Self { touched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_locations_round_trip_as_runs() {
        let d = |n: u16| Some(DeviceId(n));
        let places = ExtentPlaces::of([d(0), d(0), None, d(1), d(1), d(0)]);
        let text = serde_json::to_string(&places).unwrap();
        assert_eq!(text, "\"2x0,1x-,2x1,1x0\"");
        assert_eq!(serde_json::from_str::<ExtentPlaces>(&text).unwrap(), places);
        assert_eq!(places.count(), 6);
        // The last extent has 5 bytes of 10.
        let held = places.held(Bytes(55), Bytes(10));
        assert_eq!(held, [(DeviceId(0), Bytes(25)), (DeviceId(1), Bytes(20))]);
    }

    #[test]
    fn heat_round_trips_as_touched_extents() {
        let heat = ExtentHeat::of(vec![(4, 17), (5, 3), (1_000_000, 1)]);
        let text = serde_json::to_string(&heat).unwrap();
        assert_eq!(text, "\"4:17,0:3,999994:1\"");
        assert_eq!(serde_json::from_str::<ExtentHeat>(&text).unwrap(), heat);
        let none = ExtentHeat::default();
        assert_eq!(serde_json::from_str::<ExtentHeat>("\"\"").unwrap(), none);
    }

    #[test]
    fn invalid_extent_text_is_refused() {
        for text in ["x", "1x", "0x1", "1x-1", "-1x0", "1x65536", "1x0,", "1"] {
            assert!(ExtentPlaces::try_from(text.to_string()).is_err(), "{text}");
        }
        for text in [":", "1:", ":1", "1:0", "1:-1", "1:1,", "1"] {
            assert!(ExtentHeat::try_from(text.to_string()).is_err(), "{text}");
        }
        let long = "4294967295x0,1x1".to_string();
        assert!(matches!(
            ExtentPlaces::try_from(long),
            Err(ModelError::TooManyExtents(_))
        ));
        let far = "4294967295:1".to_string();
        assert!(matches!(
            ExtentHeat::try_from(far),
            Err(ModelError::TooManyExtents(_))
        ));
    }
}
