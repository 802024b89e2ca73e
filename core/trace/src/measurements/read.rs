//! Readers of the two forms.

use std::collections::BTreeMap;
use std::io::Read;

use units::{Bytes, Nanos};

use super::tar::{Archive, ArchiveError};
use super::{INTERVALS_MAX, Interval, MEASUREMENT_SLOT, Measurements, VolumeMeasurements};
use crate::error::{FieldError, Location, TraceError, quote};
use crate::native::check_name;
use crate::record::VOLUMES_MAX;
use crate::text::{Delimiter, Field, LineResult, Lines, parse_u64, split};

/// Largest number of columns in a header. The snapshots have about 170.
const COLUMNS_MAX: usize = 1024;
const NS_PER_US: u64 = 1000;

/// Columns of the digest, in the order of [`Cells`]. The volume's column comes first.
const DIGEST: [&str; 8] = [
    "vm",
    "index",
    "end_us",
    "reads_4k",
    "writes_4k",
    "wss_bytes",
    "read_wss_bytes",
    "write_wss_bytes",
];
/// Columns of a snapshot. `block_req_count` replaces the volume of the digest; it is the sum of reads and writes.
const SNAPSHOT: [&str; 8] = [
    "block_req_count",
    "index",
    "ts",
    "read_block_req_count",
    "write_block_req_count",
    "page_working_set_size",
    "read_page_working_set_size",
    "write_page_working_set_size",
];

/// Returns the volume of a member of the archive.
pub(super) fn volume_of(member: &str) -> Option<&str> {
    let base = member.rsplit('/').next()?;
    base.strip_prefix("block_snap_")?.strip_suffix(".csv")
}

/// Returns true if a first line is the digest's header: its columns in any order, possibly with others.
pub(super) fn is_digest_header(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let names: Vec<&[u8]> = line.split(|b| *b == b',').map(<[u8]>::trim_ascii).collect();
    DIGEST[..5]
        .iter()
        .all(|name| names.contains(&name.as_bytes()))
}

/// Volumes during reading.
#[derive(Default)]
struct MeasurementsBuilder {
    volumes: Vec<VolumeMeasurements>,
    by_name: BTreeMap<String, usize>,
    /// Slot and `end_us` of each volume's last row.
    last: Vec<(u64, u64)>,
    intervals: usize,
}

impl MeasurementsBuilder {
    fn volume(&mut self, name: &[u8]) -> Result<usize, Box<FieldError>> {
        let text = check_name(name).map_err(|reason| FieldError::new("vm", name, reason))?;
        if let Some(i) = self.by_name.get(text) {
            return Ok(*i);
        }
        if self.volumes.len() == VOLUMES_MAX {
            let reason = format!("more than {VOLUMES_MAX} volumes");
            return Err(FieldError::new("vm", name, reason));
        }
        let i = self.volumes.len();
        self.by_name.insert(text.to_owned(), i);
        self.volumes.push(VolumeMeasurements {
            name: text.to_owned(),
            intervals: Vec::new(),
        });
        self.last.push((0, 0));
        Ok(i)
    }

    fn push(&mut self, i: usize, row: &Row, text: &[&[u8]; 8]) -> Result<(), Box<FieldError>> {
        let slot_ns = MEASUREMENT_SLOT.0;
        let bad = |column: usize, reason: String| {
            Err(FieldError::new(row.names[column], text[column], reason))
        };
        let [
            index,
            end_us,
            read_pages,
            write_pages,
            working_set,
            read_ws,
            write_ws,
        ] = row.numbers;
        let (last_index, last_end_us) = self.last[i];
        let first = self.volumes[i].intervals.is_empty();
        if !first && index <= last_index {
            return bad(
                1,
                format!("not after {last_index}, the previous row of the volume"),
            );
        }
        let Some(start) = index
            .checked_mul(slot_ns)
            .filter(|s| s.checked_add(slot_ns).is_some())
        else {
            return bad(1, "beyond 2^64 ns".into());
        };
        // A request on the boundary of two slots may belong to either, so both ends are valid.
        let end_ns = end_us
            .checked_mul(NS_PER_US)
            .filter(|end| *end <= start + slot_ns);
        let idle = read_pages == 0 && write_pages == 0;
        let Some(end_ns) = end_ns.filter(|end| *end >= start || idle) else {
            return bad(2, format!("not within the 30 minutes of index {index}"));
        };
        if end_us < last_end_us {
            return bad(
                2,
                format!("before {last_end_us}, the previous row of the volume"),
            );
        }
        if read_pages.checked_add(write_pages).is_none() {
            return bad(4, "the sum of reads and writes exceeds 2^64".into());
        }
        for (column, part) in [(6, read_ws), (7, write_ws)] {
            if part > working_set {
                return bad(
                    column,
                    format!("more than {working_set}, the whole working set"),
                );
            }
        }
        if self.intervals == INTERVALS_MAX {
            return bad(1, format!("more than {INTERVALS_MAX} rows"));
        }
        self.intervals += 1;
        self.last[i] = (index, end_us);
        self.volumes[i].intervals.push(Interval {
            start: Nanos(start),
            // Preliminary end, until a later row shows that the slot was measured to its end.
            end: Nanos(if idle || end_ns == start {
                start + slot_ns
            } else {
                end_ns
            }),
            read_pages,
            write_pages,
            working_set: Bytes(working_set),
            read_working_set: Bytes(read_ws),
            write_working_set: Bytes(write_ws),
        });
        if let [.., before, _] = self.volumes[i].intervals.as_mut_slice() {
            before.end = Nanos(before.start.0 + slot_ns);
        }
        Ok(())
    }
}

/// Numbers of a row in the order of the columns, without the first.
struct Row {
    names: &'static [&'static str; 8],
    numbers: [u64; 7],
}

/// CSV with its header and rows.
struct Table<R> {
    file: String,
    lines: Lines<R>,
    names: &'static [&'static str; 8],
    columns: [usize; 8],
    width: usize,
    fields: Vec<Field>,
}

impl<R: Read> Table<R> {
    fn open(file: String, inner: R, names: &'static [&'static str; 8]) -> Result<Self, TraceError> {
        let mut table = Self {
            file,
            lines: Lines::new(inner),
            names,
            columns: [0; 8],
            width: 0,
            fields: Vec::new(),
        };
        let refuse = |file: &str, reason: String| TraceError::Columns {
            file: file.to_owned(),
            reason,
        };
        if !table.next_line()? {
            return Err(refuse(&table.file, "the header is missing".into()));
        }
        let line = table.lines.line();
        split(line, Delimiter::Byte(b','), &mut table.fields, COLUMNS_MAX);
        let cell = |f: &Field| line[f.0 as usize..f.1 as usize].trim_ascii();
        table.width = table.fields.len();
        for (name, column) in names.iter().zip(&mut table.columns) {
            let mut found = (0..table.width).filter(|i| cell(&table.fields[*i]) == name.as_bytes());
            *column = match (found.next(), found.next()) {
                (Some(i), None) => i,
                (None, _) => {
                    return Err(refuse(&table.file, format!("missing column \"{name}\"")));
                }
                (Some(_), Some(_)) => {
                    return Err(refuse(&table.file, format!("duplicate column \"{name}\"")));
                }
            };
        }
        Ok(table)
    }

    /// Reads the next line that is not blank.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        loop {
            match self.lines.next() {
                Ok(LineResult::End) => return Ok(false),
                Ok(LineResult::Line) if self.lines.line().trim_ascii().is_empty() => {}
                Ok(LineResult::Line) => return Ok(true),
                Ok(LineResult::TooLong) => {
                    let error =
                        FieldError::new("line", self.lines.line(), "longer than 65536 bytes");
                    return Err(error.at(&self.file, self.location()));
                }
                Err(source) => {
                    return Err(TraceError::Stream {
                        file: self.file.clone(),
                        offset_bytes: self.lines.offset_bytes(),
                        what: "data",
                        source,
                    });
                }
            }
        }
    }

    fn location(&self) -> Location {
        Location::Line(self.lines.number())
    }

    /// Reads the next row into `building`. `volume` is the volume if the rows do not name it.
    fn next(
        &mut self,
        building: &mut MeasurementsBuilder,
        volume: Option<&str>,
    ) -> Result<bool, TraceError> {
        if !self.next_line()? {
            return Ok(false);
        }
        let Self {
            names,
            columns,
            width,
            fields,
            ..
        } = self;
        let line = self.lines.line();
        split(line, Delimiter::Byte(b','), fields, COLUMNS_MAX);
        let parsed = if fields.len() == *width {
            let text =
                columns.map(|c| line[fields[c].0 as usize..fields[c].1 as usize].trim_ascii());
            row(&text, names, building, volume)
        } else {
            let reason = format!("{} columns, but the header has {width}", fields.len());
            Err(FieldError::new("line", line, reason))
        };
        parsed.map_err(|error| error.at(&self.file, self.location()))?;
        Ok(true)
    }
}

fn row(
    text: &[&[u8]; 8],
    names: &'static [&'static str; 8],
    building: &mut MeasurementsBuilder,
    volume: Option<&str>,
) -> Result<(), Box<FieldError>> {
    let mut numbers = [0; 7];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = parse_u64(names[i + 1], text[i + 1])?;
    }
    let name = match volume {
        None => text[0],
        Some(name) => {
            let [_, _, reads, writes, ..] = numbers;
            if reads.checked_add(writes) != Some(parse_u64(names[0], text[0])?) {
                return Err(FieldError::new(
                    names[0],
                    text[0],
                    "not the sum of reads and writes",
                ));
            }
            name.as_bytes()
        }
    };
    let i = building.volume(name)?;
    building.push(i, &Row { names, numbers }, text)
}

fn finish(file: &str, building: MeasurementsBuilder) -> Result<Measurements, TraceError> {
    if building.intervals == 0 {
        return Err(TraceError::Columns {
            file: file.to_owned(),
            reason: "the file has no measurements".into(),
        });
    }
    Ok(Measurements {
        volumes: building.volumes,
    })
}

/// Reads the digest.
pub(super) fn digest(file: &str, bytes: impl Read) -> Result<Measurements, TraceError> {
    let mut building = MeasurementsBuilder::default();
    let mut table = Table::open(file.to_owned(), bytes, &DIGEST)?;
    while table.next(&mut building, None)? {}
    finish(file, building)
}

/// Reads the archive of snapshots. Members that do not belong to a volume are skipped.
pub(super) fn snapshots(file: &str, bytes: impl Read) -> Result<Measurements, TraceError> {
    let mut building = MeasurementsBuilder::default();
    let mut archive = Archive::new(bytes);
    let broken = |broken, offset_bytes| match broken {
        ArchiveError::Io(source) => TraceError::Stream {
            file: file.to_owned(),
            offset_bytes,
            what: "data",
            source,
        },
        ArchiveError::At(offset, reason) => {
            FieldError::new("tar archive", b"", reason).at(file, Location::Byte(offset))
        }
    };
    loop {
        let next = archive.next();
        let Some(member) = next.map_err(|b| broken(b, archive.offset_bytes()))? else {
            break;
        };
        let mut left = member.size_bytes;
        if let Some(volume) = volume_of(&member.name) {
            if building.by_name.contains_key(volume) {
                return Err(TraceError::Columns {
                    file: file.to_owned(),
                    reason: format!("duplicate volume \"{}\"", quote(volume.as_bytes())),
                });
            }
            let mut contents = archive.contents(&member);
            let name = format!("{file}: {}", quote(member.name.as_bytes()));
            let mut table = Table::open(name, &mut contents, &SNAPSHOT)?;
            while table.next(&mut building, Some(volume))? {}
            left = contents.limit();
        }
        let passed = archive.pass_over(&member, member.size_bytes - left);
        passed.map_err(|b| broken(b, archive.offset_bytes()))?;
    }
    finish(file, building)
}
