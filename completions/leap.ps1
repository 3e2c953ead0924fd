# PowerShell completion for leap; `leap completion powershell --install` has your profile load it.
Register-ArgumentCompleter -Native -CommandName leap -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $start = $commandAst.Extent.StartOffset
    $line = $commandAst.ToString()
    $length = $cursorPosition - $start
    $line = if ($length -le $line.Length) { $line.Substring(0, $length) } else { $line.PadRight($length) }
    $kept = $env:_LEAP_COMPLETE, $env:_LEAP_LINE
    $env:_LEAP_COMPLETE, $env:_LEAP_LINE = 'powershell', $line
    try {
        $answer = @($null | & $commandAst.CommandElements[0].Extent.Text 2>$null)
    } finally {
        $env:_LEAP_COMPLETE, $env:_LEAP_LINE = $kept
    }

    foreach ($candidate in $answer) {
        $kind, $value, $help = $candidate -split "`t", 3
        if ($kind -eq 'plain') {
            $text = $value
            if ($value -match '[\s''"`$&|;<>(){}@#,]') { $text = "'" + ($value -replace "'", "''") + "'" }
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $help)
        } else {
            $begun = if ($wordToComplete.StartsWith($value)) { $wordToComplete.Substring($value.Length) } else { '' }
            $folder = if ($begun -match '^(.*[\\/])') { $Matches[1] } else { '' }
            Get-ChildItem -Path "$begun*" -Directory:($kind -eq 'dir') -ErrorAction SilentlyContinue | ForEach-Object {
                $text = $value + $folder + $_.Name
                if ($text -match '\s') { $text = "'" + ($text -replace "'", "''") + "'" }
                [System.Management.Automation.CompletionResult]::new($text, $_.Name, 'ProviderItem', $_.FullName)
            }
        }
    }
}
