//! References to blocks without times: the `.lis` files of the ARC paper, and lists of ids as in the LIRS paper. All
//! are treated as reads, and the position in the file is the clock.
//!
//! ```text
//! .lis    3050771 25 0 0      first block of 512 bytes, blocks, (a day number or nothing), (sequence)
//! ids     2819                one id per line; a line "*" is a breakpoint of the LIRS simulator
//! ```
//!
//! The third and fourth column of `.lis` must be numbers. The third is a day in some files and 0 in others; the fourth
//! is the line's number or 0. The format `lis` uses neither. With `lis-days`, the day is the clock: a reference's time
//! is the start of its day, counted from the first one, plus one nanosecond for each earlier reference on that day.
//! Times within a day are then unknown, and replays by time are meaningless.

use std::io::Read;

use model::Op;
use units::Bytes;

use super::ids::{IdPlacement, Places, place};
use super::rows::{RowParser, RowReader, RowResult, words};
use crate::error::FieldError;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{SourceClock, VolumeNames};
use crate::text::{check_range, parse_u64};

/// Variant of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    Lis,
    LisDays,
    Ids,
}

const DAY_NS: i64 = 86_400_000_000_000;

/// Largest number of days that times can represent.
const DAYS_MAX: u64 = 100_000;

impl References {
    /// Returns the default placement.
    fn placement(self) -> IdPlacement {
        IdPlacement::Blocks(Bytes(match self {
            References::Lis | References::LisDays => 512,
            References::Ids => 4096,
        }))
    }
}

pub(crate) struct ReferenceParser {
    form: References,
    placement: IdPlacement,
    places: Places,
    volumes: VolumeNames,
    number: i64,
    /// First day, and day of the last reference.
    days: Option<(u64, u64)>,
}

pub(crate) fn reference_reader<R: Read>(
    file: &str,
    inner: R,
    form: References,
    placement: Option<IdPlacement>,
) -> RowReader<R, ReferenceParser> {
    let parser = ReferenceParser {
        form,
        placement: placement.unwrap_or(form.placement()),
        places: Places::default(),
        volumes: VolumeNames::single(),
        number: 0,
        days: None,
    };
    RowReader::new(file, inner, parser)
}

impl RowParser for ReferenceParser {
    fn take(&mut self, line: &[u8]) -> Result<RowResult, Box<FieldError>> {
        let (id_text, count) = match (self.form, words::<5>(line)) {
            (References::Ids, [Some(b"*"), None, ..]) => return Ok(RowResult::Other),
            (References::Ids, [Some(id), None, ..]) => (id, 1),
            (
                References::Lis | References::LisDays,
                [Some(id), Some(count), Some(day), Some(sequence), None],
            ) => {
                let number = parse_u64("day", day)?;
                parse_u64("sequence", sequence)?;
                if self.form == References::LisDays {
                    self.begin_day(number, day)?;
                }
                (id, parse_u64("count", count)?)
            }
            (References::Ids, _) => return Err(FieldError::new("line", line, "more than one id")),
            (References::Lis | References::LisDays, _) => {
                return Err(FieldError::new("line", line, "not four columns"));
            }
        };
        let id = parse_u64("block", id_text)?;
        let block = match self.placement {
            IdPlacement::Blocks(block) => block.0,
            IdPlacement::Appearance => 4096,
        };
        let too_long = || FieldError::new("count", line, "4 GiB or more");
        let length = count.checked_mul(block).ok_or_else(too_long)?;
        let offset = place(self.placement, &mut self.places, id, id_text, length)?;
        let (offset_bytes, length_bytes) = check_range(offset, length)
            .map_err(|(field, reason)| FieldError::new(field, line, reason))?;
        let (first, day) = self.days.unwrap_or_default();
        let time_ns = (day - first) as i64 * DAY_NS + self.number;
        self.number += 1;
        Ok(RowResult::Record(RawRecord {
            time_ns,
            offset_bytes,
            latency_ns: LATENCY_UNKNOWN,
            length_bytes,
            volume: 0,
            op: Op::Read,
        }))
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn clock(&self) -> SourceClock {
        match self.form {
            References::Lis | References::Ids => SourceClock::Order,
            References::LisDays => SourceClock::Relative,
        }
    }
}

impl ReferenceParser {
    /// Checks that days do not go back, and restarts the count of references for a new day.
    fn begin_day(&mut self, number: u64, text: &[u8]) -> Result<(), Box<FieldError>> {
        let (first, last) = self.days.unwrap_or((number, number));
        if number < last {
            return Err(FieldError::new(
                "day",
                text,
                "before the day of the line before it",
            ));
        }
        if number - first > DAYS_MAX {
            return Err(FieldError::new(
                "day",
                text,
                "more than 100000 days after the first",
            ));
        }
        if number > last || self.days.is_none() {
            self.number = 0;
        }
        self.days = Some((first, number));
        Ok(())
    }
}
