//! How many of pm's cores writers get: all, a number, or as many as the device model says.

use pm_cli::Failure;
use pmmon::adapt::{Adaptive, Bounds, Change, Model};
use pmmon::group::{Cores, Groups, listed};
use pmmon_cli::commands::{NumberOfCores, Pin};
use serde::Serialize;

/// The cores that writers may get, and how their number is found.
pub(super) struct Plan {
    cpus: Cores,
    bounds: Bounds,
    pub adaptive: Option<Adaptive>,
}

/// Another number of cores, and why.
#[derive(Serialize)]
pub(super) struct Changed<'a> {
    time_ns: u64,
    cores: u32,
    before: u32,
    cpus: String,
    /// The load: threads, bytes of the middle access, and order.
    writers: u32,
    access: u64,
    order: pmep::Order,
    /// By the model.
    predicted_gib_s: f64,
    predicted_before_gib_s: f64,
    device: &'a str,
    modules: u32,
}

impl Plan {
    /// The plan by the options and the file.
    pub fn new(arguments: &Pin, groups: &Groups, model: Option<Model>) -> Result<Self, Failure> {
        let cpus = groups.pm.cores.clone();
        let there = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let wrong = |cause: String, way_out: &str| Failure::new(cause, way_out).with_code(2);
        let within = |option: &str, number: u32| match (1..=there).contains(&number) {
            true => Ok(number),
            false => Err(wrong(
                format!("{option} {number}: pm has the cores {}", listed(&cpus)),
                &format!("give 1 to {there}, or name others in the file"),
            )),
        };
        let min = within("--cores-min", arguments.cores_min.unwrap_or(1))?;
        let max = within("--cores-max", arguments.cores_max.unwrap_or(there))?;
        if min > max {
            let cause = format!("--cores-min {min} is above --cores-max {max}");
            return Err(wrong(cause, "give no more than that"));
        }
        let (bounds, adaptive) = match arguments.cores {
            Some(NumberOfCores::Auto) => {
                let Some(model) = model else {
                    return Err(Failure::new(
                        "--cores auto: the file has no [model]",
                        "name the device's modules there; see `pmmon pin --help`",
                    ));
                };
                let bounds = Bounds { min, max };
                (bounds, Some(Adaptive::new(model, bounds)))
            }
            Some(NumberOfCores::Fixed(_))
                if arguments.cores_min.or(arguments.cores_max).is_some() =>
            {
                let cause = "--cores-min and --cores-max are bounds of --cores auto".to_owned();
                return Err(wrong(cause, "leave them out, or take auto"));
            }
            Some(NumberOfCores::Fixed(number)) => {
                let number = within("--cores", number)?;
                let (min, max) = (number, number);
                (Bounds { min, max }, None)
            }
            None => {
                let (min, max) = (there, there);
                (Bounds { min, max }, None)
            }
        };
        Ok(Self {
            cpus,
            bounds,
            adaptive,
        })
    }

    /// The cores of writers now.
    pub fn now(&self) -> Cores {
        let cores = self.adaptive.as_ref().map(Adaptive::cores);
        self.first(cores.unwrap_or(self.bounds.min))
    }

    /// All sets of cores that writers may get.
    pub fn all(&self) -> impl Iterator<Item = Cores> {
        (self.bounds.min..=self.bounds.max).map(|number| self.first(number))
    }

    fn first(&self, number: u32) -> Cores {
        self.cpus.iter().copied().take(number as usize).collect()
    }

    /// Tells a change.
    pub fn tell(&self, time_ns: u64, change: &Change, json: bool) -> Result<(), Failure> {
        let Some(model) = self.adaptive.as_ref().map(Adaptive::model) else {
            return Ok(());
        };
        let changed = Changed {
            time_ns,
            cores: change.cores,
            before: change.before,
            cpus: listed(&self.first(change.cores)),
            writers: change.load.writers,
            access: change.load.access,
            order: change.load.order,
            predicted_gib_s: change.gib_s,
            predicted_before_gib_s: change.before_gib_s,
            device: model.device(),
            modules: model.modules(),
        };
        pm_cli::print(json, &changed, Changed::line)?;
        Ok(())
    }
}

impl Changed<'_> {
    fn line(&self) -> String {
        let order = match self.order {
            pmep::Order::Random => "anywhere",
            pmep::Order::Sequential | pmep::Order::Strided => "in order",
        };
        format!(
            "writers get {} cores ({}) after {}: {} of them store {} bytes {order}; by the model of {}, \
             {} modules, {:.2} GiB/s after {:.2}",
            self.cores,
            self.cpus,
            self.before,
            self.writers,
            self.access,
            self.device,
            self.modules,
            self.predicted_gib_s,
            self.predicted_before_gib_s,
        )
    }
}
