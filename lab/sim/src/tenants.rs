//! Tenants of the SSDs of a tier: `isolation` and `[[flash.TIER.tenants]]`.
//!
//! A tenant is a group of volumes, the same on every drive of the tier. It has no size, because volumes move. So every
//! tenant may use all addresses of every drive (frames are allocated to any volume), and a drive knows the tenant of a
//! page from its write. If erase blocks are isolated, the blocks of a tenant follow its data: see
//! [`flash::ftl::OpsShare`].

use std::collections::BTreeSet;

use config::find;
use config::scenario::{FlashConfig, FlashTenantConfig, OTHER_TENANTS, OperatorConfig};
use flash::ftl::{OpsShare, Sharing, TENANTS_MAX};
use model::SloClass;

use crate::build::VolumeModel;
use crate::{Model, ScenarioError, ScenarioFile};

/// Tenants of a tier's drives.
#[derive(Debug, Clone)]
pub(crate) struct FlashTenants {
    pub sharing: Sharing,
    /// Names in the scenario's order. The last tenant has all volumes that the scenario does not name.
    pub names: Vec<String>,
    pub shares: Vec<OpsShare>,
    /// Tenant of each volume.
    pub of_volume: Vec<u16>,
}

impl FlashTenants {
    /// Returns the tenant of all volumes that the scenario does not name.
    pub(crate) fn others(&self) -> u16 {
        self.names.len() as u16 - 1
    }

    fn share_sum(&self) -> f64 {
        let given = self.shares.iter().map(|s| match s {
            OpsShare::Given(share) => *share,
            OpsShare::ByData => 0.0,
        });
        given.sum()
    }
}

/// Returns true if a sum of shares exceeds 1, within floating-point tolerance.
fn is_too_much(sum: f64) -> bool {
    sum > 1.0 + 1e-9
}

fn not_a_share(share: f64) -> Option<String> {
    let fine = (0.0..=1.0).contains(&share);
    (!fine).then(|| format!("must be a share from 0 to 1, not {share}"))
}

impl Model {
    /// Returns the distinct names of the tenants of the model's SSDs.
    pub(crate) fn tenants(&self) -> Vec<&str> {
        let of_flash = self.flash.iter().flatten();
        let all = of_flash.filter_map(|f| f.tenants.as_deref());
        let names: BTreeSet<&str> = all.flat_map(|t| &t.names).map(String::as_str).collect();
        names.into_iter().collect()
    }
}

impl ScenarioFile {
    /// Reads the tenants of a tier's drives; `None` if the drives are not shared by tenants.
    pub(crate) fn tenants(
        &self,
        tier: &str,
        config: &FlashConfig,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Option<FlashTenants>, ScenarioError> {
        let key = |key: &str| format!("flash.{tier}.{key}");
        if config.tenants.is_empty() {
            return match config.isolation {
                None | Some(Sharing::OnePool) => Ok(None),
                Some(_) => {
                    let why = format!(
                        "isolation requires tenants: name them in [[flash.{tier}.tenants]]"
                    );
                    Err(self.fault(&key("isolation"), why))
                }
            };
        }
        let Some(sharing) = config.isolation else {
            let why = format!(
                "tenants require flash.{tier}.isolation: \"isolated\", or \"one-pool\" to only count them separately"
            );
            return Err(self.fault(&key("tenants"), why));
        };
        let mut out = FlashTenants {
            sharing,
            names: Vec::new(),
            shares: Vec::new(),
            of_volume: vec![u16::MAX; volumes.len()],
        };
        let mut others = OpsShare::ByData;
        for (i, tenant) in config.tenants.iter().enumerate() {
            let at = |key: &str| format!("flash.{tier}.tenants[{i}].{key}");
            let share = match tenant.ops_share {
                None => OpsShare::ByData,
                Some(_) if sharing != Sharing::Isolated => {
                    let why = "requires isolation = \"isolated\": only isolated tenants have their own over-provisioning";
                    return Err(self.fault(&at("ops_share"), why));
                }
                Some(share) => match not_a_share(share) {
                    Some(why) => return Err(self.fault(&at("ops_share"), why)),
                    None => OpsShare::Given(share),
                },
            };
            let twice = config.tenants[..i].iter().any(|t| t.name == tenant.name);
            if twice || tenant.name.is_empty() {
                let why = match twice {
                    true => format!("tenant \"{}\" is listed twice", tenant.name),
                    false => "a tenant needs a name".into(),
                };
                return Err(self.fault(&at("name"), why));
            }
            if tenant.name == OTHER_TENANTS {
                if !tenant.volumes.is_empty() || tenant.class.is_some() {
                    let why = format!(
                        "\"{OTHER_TENANTS}\" stands for the volumes without a tenant: give it only a share"
                    );
                    return Err(self.fault(&at("name"), why));
                }
                others = share;
                continue;
            }
            let (n, here) = (out.names.len() as u16, &at);
            for volume in self.volumes_of_tenant(tenant, here, volumes, classes)? {
                let before = std::mem::replace(&mut out.of_volume[volume], n);
                if before != u16::MAX {
                    let name = &volumes[volume].name;
                    let by = match tenant.class {
                        Some(_) => "class",
                        None => "volumes",
                    };
                    let why = match before == n {
                        true => format!("volume \"{name}\" is listed twice"),
                        false => format!(
                            "volume \"{name}\" already belongs to tenant \"{}\"",
                            out.names[usize::from(before)]
                        ),
                    };
                    return Err(self.fault(&at(by), why));
                }
            }
            out.names.push(tenant.name.clone());
            out.shares.push(share);
        }
        out.names.push(OTHER_TENANTS.into());
        let left = out.of_volume.contains(&u16::MAX);
        // Without volumes the last tenant gets no share, unless drives do not know which pages are data (no discard).
        out.shares.push(match others {
            OpsShare::ByData if !left && config.discard => OpsShare::Given(0.0),
            share => share,
        });
        let others = out.others();
        for tenant in &mut out.of_volume {
            *tenant = (*tenant).min(others);
        }
        if out.names.len() > TENANTS_MAX as usize {
            let why =
                format!("the tenants, with \"{OTHER_TENANTS}\", exceed the limit of {TENANTS_MAX}");
            return Err(self.fault(&key("tenants"), why));
        }
        if is_too_much(out.share_sum()) {
            let why = format!(
                "the sum of ops_share is {}, which exceeds 1",
                out.share_sum()
            );
            return Err(self.fault(&key("tenants"), why));
        }
        Ok(Some(out))
    }

    fn volumes_of_tenant(
        &self,
        tenant: &FlashTenantConfig,
        at: &dyn Fn(&str) -> String,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Vec<usize>, ScenarioError> {
        match (&tenant.class, tenant.volumes.is_empty()) {
            (Some(_), false) => Err(self.fault(&at("class"), "give either volumes or a class")),
            (None, true) => {
                let why = format!("tenant \"{}\" requires volumes or a class", tenant.name);
                Err(self.fault(&at("volumes"), why))
            }
            (None, false) => {
                let names = || volumes.iter().map(|v| v.name.as_str());
                let found = tenant.volumes.iter().map(|name| find(name, names()));
                let found: Result<Vec<usize>, _> = found.collect();
                found.map_err(|why| self.fault(&at("volumes"), why))
            }
            (Some(class), true) => {
                let class = find(class, classes.iter().map(|c| c.name.as_str()))
                    .map_err(|why| self.fault(&at("class"), why))?;
                let of_class = volumes.iter().enumerate();
                let of_class = of_class.filter(|(_, v)| v.class.index() == class);
                Ok(of_class.map(|(i, _)| i).collect())
            }
        }
    }

    /// Checks the operators' shares of over-provisioned space. Tiers and tenants must exist, and shares must not exceed
    /// 1 at any time. `tenants` returns the tenants of a tier's drives by its name.
    pub(crate) fn check_over_provisioning<'a>(
        &self,
        operators: &[OperatorConfig],
        tenants: impl Fn(&str) -> Option<&'a FlashTenants>,
    ) -> Result<(), ScenarioError> {
        let mut order: Vec<usize> = (0..operators.len()).collect();
        order.sort_by_key(|i| operators[*i].at);
        for tier in self.scenario.flash.keys() {
            let mut now = tenants(tier).cloned();
            for i in &order {
                let Some(shares) = operators[*i].over_provisioning.get(tier) else {
                    continue;
                };
                let at = format!("operator[{i}].over_provisioning.{tier}");
                let Some(now) = now.as_mut().filter(|t| t.sharing == Sharing::Isolated) else {
                    let why = format!(
                        "its SSDs have no over-provisioning per tenant, which requires tenants and isolation = \"isolated\" in [flash.{tier}]"
                    );
                    return Err(self.fault(&at, why));
                };
                for (name, share) in shares {
                    let n = find(name, now.names.iter().map(String::as_str))
                        .map_err(|why| self.fault(&at, why))?;
                    if let Some(why) = not_a_share(*share) {
                        return Err(self.fault(&format!("{at}.{name}"), why));
                    }
                    now.shares[n] = OpsShare::Given(*share);
                }
                if is_too_much(now.share_sum()) {
                    let sum = now.share_sum();
                    let why = format!("the sum of all shares becomes {sum}, which exceeds 1");
                    return Err(self.fault(&at, why));
                }
            }
        }
        for (i, order) in operators.iter().enumerate() {
            for tier in order.over_provisioning.keys() {
                let known = self.scenario.flash.keys().map(String::as_str);
                find(tier, known).map_err(|why| {
                    let why = format!("in flash: {why}");
                    self.fault(&format!("operator[{i}].over_provisioning"), why)
                })?;
            }
        }
        Ok(())
    }
}
