//! Options of nodes that QEMU does not report, from its command line or from the names of our own nodes.

use serde_json::Value;

/// Method of a file's I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aio {
    Threads,
    /// Linux AIO.
    Native,
    /// io_uring.
    IoUring,
}

impl Aio {
    const ALL: [(Aio, &'static str, char); 3] = [
        (Aio::Threads, "threads", 't'),
        (Aio::Native, "native", 'n'),
        (Aio::IoUring, "io_uring", 'r'),
    ];

    /// Returns QEMU's name of the method.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(aio, ..)| *aio == self)
            .map_or("threads", |a| a.1)
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|a| a.1 == name).map(|a| a.0)
    }
}

/// Options of an image's nodes that QEMU does not report; `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// True if discards of the guest free space.
    pub unmap: Option<bool>,
    /// Method of I/O.
    pub aio: Option<Aio>,
}

impl Options {
    /// Finds the options of an image by the names of its format node, its file node and its drive.
    pub fn of(command_line: &[String], names: [&str; 3]) -> Self {
        let [format, protocol, drive] = names;
        if let Some(ours) = Self::of_our_name(format) {
            return ours;
        }
        let pairs = command_line.windows(2);
        let mut options = Self::default();
        for pair in pairs {
            let known = match pair[0].trim_start_matches('-') {
                "blockdev" if pair[0].starts_with('-') => blockdev(&pair[1]),
                "drive" if pair[0].starts_with('-') => keys(&pair[1]),
                _ => continue,
            };
            let get = |key: &str| known.iter().find(|(k, _)| k == key).map(|(_, v)| &**v);
            let of_drive = !drive.is_empty() && pair[0].ends_with("drive");
            let is_format =
                get("node-name") == Some(format) || of_drive && get("id") == Some(drive);
            let is_protocol = get("node-name") == Some(protocol);
            if is_format {
                options.unmap = Some(get("discard").is_some_and(|d| matches!(d, "unmap" | "on")));
            }
            if is_format || is_protocol {
                let aio = get("aio").or(get("file.aio")).and_then(Aio::of_name);
                options.aio = aio.or(options.aio);
            }
        }
        options
    }

    /// Returns two letters that encode the options.
    pub(super) fn letters(self) -> String {
        let unmap = if self.unmap == Some(true) { 'u' } else { 'i' };
        let aio = self.aio.unwrap_or(Aio::Threads);
        let letter = Aio::ALL.iter().find(|a| a.0 == aio).map_or('t', |a| a.2);
        [unmap, letter].iter().collect()
    }

    /// Decodes the options in the name of a node that we created.
    fn of_our_name(name: &str) -> Option<Self> {
        let (_, letters) = name.strip_prefix("terrace-")?.split_once('-')?;
        let mut letters = letters.chars();
        let unmap = match letters.next()? {
            'u' => true,
            'i' => false,
            _ => return None,
        };
        let letter = letters.next()?;
        let aio = Aio::ALL.iter().find(|a| a.2 == letter)?.0;
        Some(Self {
            unmap: Some(unmap),
            aio: Some(aio),
        })
    }
}

fn blockdev(text: &str) -> Vec<(String, String)> {
    if !text.starts_with('{') {
        return keys(text);
    }
    let mut flat = vec![];
    if let Ok(value) = serde_json::from_str(text) {
        flatten("", &value, &mut flat);
    }
    flat
}

fn flatten(path: &str, value: &Value, flat: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                flatten(&path, value, flat);
            }
        }
        Value::String(text) => flat.push((path.into(), text.clone())),
        other => flat.push((path.into(), other.to_string())),
    }
}

/// Parses `KEY=VALUE,…`, in which two commas stand for a literal comma.
fn keys(text: &str) -> Vec<(String, String)> {
    const COMMA: char = '\u{0}';
    let text = text.replace(",,", &COMMA.to_string());
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.replace(COMMA, ",")));
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_in_each_form() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let line = words(
            "qemu -blockdev {\"driver\":\"file\",\"filename\":\"/a\",\"node-name\":\"f\",\"aio\":\"native\"} \
             --blockdev driver=raw,file=f,node-name=a,discard=unmap -drive file=/b,,c,id=d0,if=none,discard=on,aio=io_uring \
             -blockdev driver=qcow2,node-name=q,file.driver=file,file.aio=threads,file.filename=/q",
        );
        let options = |unmap: bool, aio| Options {
            unmap: Some(unmap),
            aio: Some(aio),
        };
        let of = |format, protocol, drive| Options::of(&line, [format, protocol, drive]);
        assert_eq!(of("a", "f", ""), options(true, Aio::Native));
        assert_eq!(of("#block1", "#block0", "d0"), options(true, Aio::IoUring));
        assert_eq!(of("q", "#block7", ""), options(false, Aio::Threads));
        assert_eq!(of("other", "f2", ""), Options::default());
        let ours = options(true, Aio::Native);
        let name = format!("terrace-00ff-{}", ours.letters());
        assert_eq!(of(&name, "", ""), ours);
        assert_eq!(of("terrace-x", "", ""), Options::default());
    }
}
