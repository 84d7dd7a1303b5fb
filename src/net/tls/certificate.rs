//! Two facts of an X.509 certificate that rustls keeps to itself: when it ends, and whose it is.
//!
//! Nothing here decides whom to trust: rustls verifies, this only reads for logs, metrics and one check
//! that can only refuse. Any input is safe; what cannot be read is `None`.

use super::clock::unix_s_of;

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const SAN_DNS: u8 = 0x82;
const SAN_URI: u8 = 0x86;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Longest name for a log line, in characters.
const NAME_LEN_MAX: usize = 128;

/// The end of validity, in seconds since the Unix epoch.
pub(super) fn not_after_unix_s(certificate: &[u8]) -> Option<u64> {
    let mut validity = Der(ToBeSigned::parse(certificate)?.validity);
    validity.next()?;
    let (tag, text) = validity.next()?;
    let number = |digits: &[u8]| -> Option<u64> {
        digits
            .iter()
            .try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, rest) = match tag {
        UTC_TIME => {
            let year = number(text.get(..2)?)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        GENERALIZED_TIME => (number(text.get(..4)?)?, &text[4..]),
        _ => return None,
    };
    // DER allows one form: seconds, no fraction, Z.
    if rest.len() != 11 || rest[10] != b'Z' {
        return None;
    }
    let part = |index: usize| number(&rest[index * 2..index * 2 + 2]);
    unix_s_of(year, part(0)?, part(1)?, [part(2)?, part(3)?, part(4)?])
}

/// The subject's common name, else the first DNS or URI name, cut and cleaned for a log line.
pub(super) fn name(certificate: &[u8]) -> Option<String> {
    let parts = ToBeSigned::parse(certificate)?;
    let name = parts.common_name().or_else(|| parts.alternative_name())?;
    let text = String::from_utf8_lossy(name);
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    Some(text.chars().take(NAME_LEN_MAX).map(clean).collect())
}

struct ToBeSigned<'a> {
    validity: &'a [u8],
    subject: &'a [u8],
    /// Public key and extensions.
    rest: &'a [u8],
}

impl<'a> ToBeSigned<'a> {
    fn parse(certificate: &'a [u8]) -> Option<Self> {
        let mut fields = Der(Der(Der(certificate).take_tag(SEQUENCE)?).take_tag(SEQUENCE)?);
        // The version is optional, the serial number is not.
        if fields.next()?.0 == VERSION {
            fields.next()?;
        }
        fields.take_tag(SEQUENCE)?; // signature algorithm
        fields.take_tag(SEQUENCE)?; // issuer
        Some(Self {
            validity: fields.take_tag(SEQUENCE)?,
            subject: fields.take_tag(SEQUENCE)?,
            rest: fields.0,
        })
    }

    fn common_name(&self) -> Option<&'a [u8]> {
        let mut found = None;
        for (_, set) in Der(self.subject) {
            for (_, attribute) in Der(set) {
                let mut attribute = Der(attribute);
                if attribute.take_tag(OBJECT_ID) == Some(COMMON_NAME) {
                    // The last one is the most specific.
                    found = attribute.next().map(|(_, value)| value).or(found);
                }
            }
        }
        found
    }

    fn alternative_name(&self) -> Option<&'a [u8]> {
        let extensions = Der(self.rest).find(|(tag, _)| *tag == EXTENSIONS)?.1;
        for (_, extension) in Der(Der(extensions).take_tag(SEQUENCE)?) {
            let mut extension = Der(extension);
            if extension.take_tag(OBJECT_ID) != Some(SUBJECT_ALT_NAME) {
                continue;
            }
            let (mut tag, mut value) = extension.next()?;
            if tag == BOOLEAN {
                (tag, value) = extension.next()?;
            }
            let names = Der(value).take_tag(SEQUENCE).filter(|_| tag == OCTET_STRING)?;
            return Der(names).find(|(tag, _)| matches!(*tag, SAN_DNS | SAN_URI)).map(|(_, name)| name);
        }
        None
    }
}

/// The elements of a DER body, as (tag, contents). Ends at the first that is cut or has a long tag.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn take_tag(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }
}

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, contents))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn made(sans: &[&str], edit: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let sans: Vec<String> = sans.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(sans).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        edit(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_in_both_forms_of_time() {
        let near = made(&[], |params| params.not_after = date_time_ymd(2031, 7, 9));
        assert_eq!(not_after_unix_s(&near), unix_s_of(2031, 7, 9, [0, 0, 0]));
        let far = made(&[], |params| params.not_after = date_time_ymd(2051, 12, 31));
        assert_eq!(not_after_unix_s(&far), unix_s_of(2051, 12, 31, [0, 0, 0]));
    }

    #[test]
    fn the_name_is_the_common_name_else_the_first_alternative() {
        let both = made(&["node.example"], |params| {
            params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
            params.distinguished_name.push(DnType::CommonName, "agent\n7");
        });
        assert_eq!(name(&both).as_deref(), Some("agent\u{fffd}7"));
        assert_eq!(name(&made(&["10.1.2.3", "node.example"], |_| ())).as_deref(), Some("node.example"));
        assert_eq!(name(&made(&[], |_| ())), None);
    }

    #[test]
    fn any_cut_or_changed_byte_is_survived() {
        let whole = made(&["node.example"], |params| {
            params.distinguished_name.push(DnType::CommonName, "agent-7");
        });
        for end in 0..whole.len() {
            assert_eq!(not_after_unix_s(&whole[..end]), None);
            assert_eq!(name(&whole[..end]), None);
            for value in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[end] = value;
                // The answer does not matter, only that there is one.
                let _ = (not_after_unix_s(&changed), name(&changed));
            }
        }
    }
}
