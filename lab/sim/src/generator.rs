//! Load generator as a source of requests: pages on volumes.

use algo::mix;
use config::find;
use trace::{Arrival, ArrivalSpec, Arrivals};
use units::{Bytes, VolumeId};

use crate::source::Issue;
use crate::{Model, ScenarioError, ScenarioFile, VolumeModel};

/// Load condition on volumes.
#[derive(Debug, Clone)]
pub struct GeneratorModel {
    /// Load condition with its requests.
    pub spec: ArrivalSpec,
    /// Volumes to which its pages are assigned in turn.
    pub volumes: Vec<VolumeId>,
}

impl GeneratorModel {
    /// Returns the volume of a page and its index there: the first page is on the first volume, the second page on the
    /// second, and so on.
    pub fn place(&self, page: u32) -> (VolumeId, u32) {
        let volumes = self.volumes.len() as u32;
        (self.volumes[(page % volumes) as usize], page / volumes)
    }

    /// Returns the largest number of pages of a volume.
    pub fn pages_per_volume(&self) -> u32 {
        self.spec
            .condition
            .pages()
            .div_ceil(self.volumes.len() as u32)
    }
}

impl ScenarioFile {
    /// Returns the scenario's generators after all checks.
    pub(crate) fn generators(
        &self,
        volumes: &[VolumeModel],
    ) -> Result<Vec<GeneratorModel>, ScenarioError> {
        let names = || volumes.iter().map(|v| v.name.as_str());
        let mut out = Vec::new();
        for (i, config) in self.scenario.generators.iter().enumerate() {
            let at = |key: &str| format!("generators[{i}].{key}");
            let condition = trace::conditions::condition(&config.condition).ok_or_else(|| {
                let known = trace::conditions::condition_names();
                let why = format!("unknown condition; known: {}", known.join(", "));
                self.fault(&at("condition"), why)
            })?;
            for (key, share) in [
                ("read_share", config.read_share),
                ("sequential_share", config.sequential_share),
            ] {
                if !(0.0..=1.0).contains(&share) {
                    return Err(self.fault(&at(key), "must be between 0 and 1"));
                }
            }
            let (page, request) = (config.page, config.request);
            let whole = request.0 > 0 && page.0 >= request.0 && page.0.is_multiple_of(request.0);
            if !whole || page > Bytes::gib(1) {
                let why =
                    format!("must be at most 1 GiB and a multiple of the request size, {request}");
                return Err(self.fault(&at("page"), why));
            }
            if config.volumes.is_empty() {
                return Err(self.fault(&at("volumes"), "must list at least one volume"));
            }
            let found = config.volumes.iter().enumerate().map(|(n, name)| {
                let v = find(name, names())
                    .map_err(|why| self.fault(&at(&format!("volumes[{n}]")), why))?;
                Ok(VolumeId::from_index(v))
            });
            let generator = GeneratorModel {
                spec: ArrivalSpec {
                    condition,
                    page,
                    request,
                    read_share: config.read_share,
                    sequential_share: config.sequential_share,
                },
                volumes: found.collect::<Result<_, ScenarioError>>()?,
            };
            let need = Bytes(u64::from(generator.pages_per_volume()) * page.0);
            let small = generator.volumes.iter().map(|v| &volumes[v.index()]);
            if let Some(v) = small.into_iter().find(|v| v.size < need) {
                let why = format!(
                    "volume \"{}\" of {} is too small: the pages of the condition need {need}",
                    v.name, v.size
                );
                return Err(self.fault(&at("volumes"), why));
            }
            out.push(generator);
        }
        Ok(out)
    }
}

pub(crate) struct GeneratorSource<'a> {
    model: &'a GeneratorModel,
    arrivals: Arrivals,
    /// Next request to issue.
    next: Arrival,
    stream: u64,
    issued: u64,
}

impl<'a> GeneratorSource<'a> {
    pub(crate) fn new(model: &'a Model, i: usize) -> Self {
        let generator = &model.generators[i];
        let mut arrivals = Arrivals::new(&generator.spec, mix(model.seed, 0x9E_0000 + i as u64));
        Self {
            model: generator,
            next: arrivals.advance(),
            arrivals,
            stream: mix(model.seed, 0x9F_0000 + i as u64),
            issued: 0,
        }
    }

    pub(crate) fn due_ns(&self) -> u64 {
        self.next.at.0
    }

    /// Returns the request that is due. Its latency counts from its due time, however late it is issued.
    pub(crate) fn take(&mut self) -> Issue {
        let Arrival {
            at,
            page,
            op,
            offset,
        } = self.next;
        self.next = self.arrivals.advance();
        self.issued += 1;
        let (volume, place) = self.model.place(page);
        Issue {
            volume: volume.0,
            op,
            offset: u64::from(place) * self.model.spec.page.0 + offset,
            length: self.model.spec.request.0,
            arrival_ns: at.0,
            bits: mix(self.stream, self.issued),
        }
    }
}
