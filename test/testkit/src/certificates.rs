//! Certificates and keys in files for servers and clients of NBD.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

/// Validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Valid for longer than any test.
    Long,
    /// Already expired.
    Expired,
}

/// Certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Creates an authority of this name.
    ///
    /// # Panics
    /// The system has no randomness.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Creates the directory if it is missing, and adds this authority's certificate to it as trusted.
    ///
    /// # Panics
    /// The files cannot be written.
    pub fn trusted_in(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        put(&dir.join("ca-cert.pem"), &self.pem);
    }

    /// Writes the key and certificate of a server with these names to a directory.
    ///
    /// # Panics
    /// The files cannot be written.
    pub fn server(&self, dir: &Path, names: &[&str], holds: Holds) {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        self.sign(dir, "server", names, usage, holds, 2);
    }

    /// Writes the key and certificate of a client with this serial number to a directory.
    ///
    /// # Panics
    /// The files cannot be written.
    pub fn client(&self, dir: &Path, holds: Holds, serial: u64) {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        self.sign(dir, "client", &["host1"], usage, holds, serial);
    }

    /// Revokes certificates by their serial numbers, for readers of this directory.
    ///
    /// # Panics
    /// The files cannot be written.
    pub fn revoke(&self, dir: &Path, serials: &[u64]) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2999, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let pem = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        put(&dir.join("ca-crl.pem"), &pem);
    }

    fn sign(
        &self,
        dir: &Path,
        whose: &str,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
        holds: Holds,
        serial: u64,
    ) {
        self.trusted_in(dir);
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, whose);
        params.extended_key_usages = vec![usage];
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = match holds {
            Holds::Long => date_time_ymd(2999, 1, 1),
            Holds::Expired => date_time_ymd(2021, 1, 1),
        };
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        put(&dir.join(format!("{whose}-cert.pem")), &signed.pem());
        secret(&dir.join(format!("{whose}-key.pem")), &key.serialize_pem());
    }
}

/// Writes a file that only its owner may read.
///
/// # Panics
/// The file cannot be written.
pub fn secret(path: &Path, text: &str) {
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

fn put(path: &Path, text: &str) {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}
