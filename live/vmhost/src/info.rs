//! Content and options of an image, which `qemu-img info` and QEMU's list of nodes report in the same form.

use serde_json::Value;

use crate::HostError;
use crate::qemu::Field;

/// Features of an image besides place and format. A raw image has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageInfo {
    /// Bytes that the guest sees; `None` for a raw image that was not inspected.
    pub virtual_size: Option<u64>,
    /// Number of internal snapshots.
    pub snapshots: usize,
    /// Names of bitmaps, including bitmaps in use and inconsistent ones.
    pub bitmaps: Vec<String>,
    /// Backing image, as the image itself names it.
    pub backing: Option<String>,
    /// File with the image's data, if it is separate.
    pub data_file: Option<String>,
    pub encrypted: bool,
    /// True if the image is marked corrupt.
    pub corrupt: bool,
    /// Options of a qcow2 image.
    pub layout: Option<Layout>,
}

/// Options of a qcow2 image that its copy must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Version of the format: `0.10` or `1.1`.
    pub compat: String,
    pub cluster_bytes: u64,
    /// `None` in version 0.10, which always has 16.
    pub refcount_bits: Option<u64>,
    pub lazy_refcounts: bool,
    /// True if clusters have subclusters.
    pub extended_l2: bool,
    /// Method of compression of clusters, such as `zstd`; `None` if QEMU does not report it.
    pub compression: Option<String>,
}

impl ImageInfo {
    /// Parses the output of `qemu-img info --output=json`.
    ///
    /// # Errors
    /// The field that is missing or wrong.
    pub fn of(said: &Value) -> Result<Self, HostError> {
        Self::of_field(&Field::root("qemu-img info", said))
    }

    pub(crate) fn of_field(image: &Field<'_>) -> Result<Self, HostError> {
        let specific = image.field("format-specific");
        let data = specific.field("data");
        let text = |field: &Field<'_>| field.maybe(Field::text).map(|t| t.map(String::from));
        let flag = |field: &Field<'_>| field.maybe(Field::flag).map(|f| f.unwrap_or(false));
        let names = data.field("bitmaps").maybe(Field::items)?;
        let names = names.unwrap_or_default();
        let bitmaps = names
            .iter()
            .map(|b| b.field("name").text().map(String::from));
        let snapshots = image.field("snapshots").maybe(Field::items)?;
        let is_qcow2 = specific.field("type").maybe(Field::text)? == Some("qcow2");
        let layout = is_qcow2.then(|| {
            Ok::<_, HostError>(Layout {
                compat: data.field("compat").text()?.into(),
                cluster_bytes: image.field("cluster-size").number()?,
                refcount_bits: data.field("refcount-bits").maybe(Field::number)?,
                lazy_refcounts: flag(&data.field("lazy-refcounts"))?,
                extended_l2: flag(&data.field("extended-l2"))?,
                compression: text(&data.field("compression-type"))?,
            })
        });
        Ok(Self {
            virtual_size: image.field("virtual-size").maybe(Field::number)?,
            snapshots: snapshots.map_or(0, |list| list.len()),
            bitmaps: bitmaps.collect::<Result<_, _>>()?,
            backing: text(&image.field("backing-filename"))?,
            data_file: text(&data.field("data-file"))?,
            encrypted: flag(&image.field("encrypted"))? || data.field("encrypt").is_there(),
            corrupt: flag(&data.field("corrupt"))?,
            layout: layout.transpose()?,
        })
    }
}

impl Layout {
    /// Returns the options for `qemu-img create -o`.
    ///
    /// # Errors
    /// [`HostError::ImageOption`].
    pub fn create_options(&self) -> Result<String, HostError> {
        let refuse = |option: String| Err(HostError::ImageOption(option));
        let old = match &*self.compat {
            "1.1" => false,
            "0.10" => true,
            other => return refuse(format!("compat={other}")),
        };
        let mut options = vec![
            format!("compat={}", self.compat),
            format!("cluster_size={}", self.cluster_bytes),
        ];
        if !old {
            options.push(format!("lazy_refcounts={}", on(self.lazy_refcounts)));
        }
        // Programs before 5.2 do not support the last two options, and do not set them by default.
        match self.refcount_bits {
            Some(bits) if !old => options.push(format!("refcount_bits={bits}")),
            Some(16) | None => {}
            Some(bits) => return refuse(format!("refcount_bits={bits} with compat=0.10")),
        }
        if self.extended_l2 {
            options.push("extended_l2=on".into());
        }
        match self.compression.as_deref() {
            None | Some("zlib") => {}
            Some("zstd") => options.push("compression_type=zstd".into()),
            Some(other) => return refuse(format!("compression_type={other:?}")),
        }
        Ok(options.join(","))
    }

    /// Returns an option in which another image differs, with both values.
    pub fn difference(&self, other: &Layout) -> Option<String> {
        let bits = |l: &Layout| l.refcount_bits.unwrap_or(16).to_string();
        let compression = |l: &Layout| l.compression.clone().unwrap_or("zlib".into());
        let options = |l: &Layout| {
            [
                ("compat", l.compat.clone()),
                ("cluster_size", l.cluster_bytes.to_string()),
                ("refcount_bits", bits(l)),
                ("lazy_refcounts", on(l.lazy_refcounts).into()),
                ("extended_l2", on(l.extended_l2).into()),
                ("compression_type", compression(l)),
            ]
        };
        let mut both = options(self).into_iter().zip(options(other));
        let ((name, ours), (_, theirs)) = both.find(|(a, b)| a != b)?;
        Some(format!("{name}={theirs} instead of {ours}"))
    }
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(data: &Value) -> ImageInfo {
        ImageInfo::of(&json!({
            "virtual-size": 4194304, "format": "qcow2", "cluster-size": 65536,
            "format-specific": { "type": "qcow2", "data": data },
        }))
        .unwrap()
    }

    #[test]
    fn image_options_are_copied_to_the_new_image() {
        let all = info(&json!({
            "compat": "1.1", "lazy-refcounts": true, "refcount-bits": 1, "extended-l2": true,
            "compression-type": "zstd", "corrupt": false,
        }));
        let layout = all.layout.unwrap();
        assert_eq!(
            layout.create_options().unwrap(),
            "compat=1.1,cluster_size=65536,lazy_refcounts=on,refcount_bits=1,extended_l2=on,\
             compression_type=zstd"
        );
        assert_eq!(layout.difference(&layout), None);
        let old =
            info(&json!({ "compat": "0.10", "refcount-bits": 16, "compression-type": "zlib" }));
        let old = old.layout.unwrap();
        assert_eq!(
            old.create_options().unwrap(),
            "compat=0.10,cluster_size=65536"
        );
        let without = Layout {
            extended_l2: false,
            ..layout.clone()
        };
        let differs = layout.difference(&without).unwrap();
        assert_eq!(differs, "extended_l2=off instead of on");
        for (change, said) in [
            (
                json!({ "compat": "1.1", "compression-type": "lz'4" }),
                "compression_type=\"lz'4\"",
            ),
            (json!({ "compat": "2" }), "compat=2"),
            (
                json!({ "compat": "0.10", "refcount-bits": 8 }),
                "refcount_bits=8 with compat=0.10",
            ),
        ] {
            assert_eq!(
                info(&change).layout.unwrap().create_options(),
                Err(HostError::ImageOption(said.into()))
            );
        }
    }

    #[test]
    fn invalid_image_info_is_refused_with_its_field() {
        let wrong = ImageInfo::of(&json!({
            "snapshots": 3, "format-specific": { "type": "qcow2", "data": { "compat": "1.1" } },
        }));
        let why = wrong.unwrap_err().to_string();
        assert_eq!(why, "qemu-img info, return.snapshots: not a list");
        let missing = ImageInfo::of(&json!({
            "format-specific": { "type": "qcow2", "data": { "compat": "1.1" } },
        }));
        let why = missing.unwrap_err().to_string();
        assert_eq!(why, "qemu-img info, return.cluster-size: not a number");
        assert!(
            ImageInfo::of(&json!({ "format": "raw" }))
                .unwrap()
                .layout
                .is_none()
        );
    }
}
